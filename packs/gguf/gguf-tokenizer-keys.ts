import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { GgufKeys, GgufScalar } from './gguf-types.js';

/** Kinds of tokens, by their number in tokenizer.ggml.token_type (llama.h, enum llama_token_type). */
export const GGUF_TOKEN = {
  undefined: 0,
  normal: 1,
  unknown: 2,
  control: 3,
  userDefined: 4,
  unused: 5,
  byte: 6,
} as const;

/** The largest vocabularies have 262,144 tokens, of at most a few hundred characters, and 515,000 merges. */
const MOST_TOKENS = 1_000_000;
const MOST_MERGES = 4_000_000;
const MOST_TOKEN_CHARACTERS = 4096;
/** All tokens together, or all merges: tokenizer.json must stay below the 256 MiB that its reader takes. */
const MOST_CHARACTERS = 32_000_000;
const MOST_TEMPLATE_CHARACTERS = 1024 * 1024;

/** llama.cpp's mark for "there is no such token": -1, read as 32 bits without a sign. */
const NO_TOKEN = 0xffffffff;

export const TOKENIZER_KEY = 'tokenizer.ggml.';
const TEMPLATE_KEY = 'tokenizer.chat_template';

/** The tokens of a file. */
export interface GgufVocabulary {
  /** By id. No two are equal, and none is empty. */
  readonly tokens: readonly string[];
  /** GGUF_TOKEN of each id. */
  readonly types: readonly number[];
  /** False: the file does not say which tokens are control tokens. */
  readonly isTyped: boolean;
  readonly ids: ReadonlyMap<string, number>;
}

export function corruptTokenizer(path: string, problem: string): OdmoeError {
  return new OdmoeError('MODEL_CORRUPT', `${path}: ${problem}; the file is damaged: download or copy it again`);
}

/** @throws MODEL_CORRUPT: tokens are absent, not texts, equal, too many or too long, or their types do not fit */
export function readVocabulary(keys: GgufKeys, path: string): GgufVocabulary {
  const name = `${TOKENIZER_KEY}tokens`;
  const given = textsOf(keys, name, MOST_TOKENS, path);
  if (given === null || given.length === 0) throw corruptTokenizer(path, `${name} has no tokens`);
  // llama.cpp names empty tokens so. They stand for nothing, and no text becomes one.
  const tokens = given.map((token, id) => (token === '' ? `[EMPTY_${id}]` : token));
  const ids = new Map<string, number>();
  for (const [id, token] of tokens.entries()) {
    const other = ids.get(token);
    if (other !== undefined) {
      throw corruptTokenizer(path, `${name} has ${shown(token)} twice, as ids ${other} and ${id}`);
    }
    ids.set(token, id);
  }
  const stated = numbersOf(keys, `${TOKENIZER_KEY}token_type`, tokens.length, path);
  const types = given.map((token, id) => (token === '' ? GGUF_TOKEN.unused : (stated?.[id] ?? GGUF_TOKEN.normal)));
  const strange = types.find(
    (type) => !Number.isInteger(type) || type < GGUF_TOKEN.undefined || type > GGUF_TOKEN.byte,
  );
  if (strange !== undefined) {
    throw corruptTokenizer(path, `${TOKENIZER_KEY}token_type has ${strange}, expected 0 to ${GGUF_TOKEN.byte}`);
  }
  return { tokens, types, isTyped: stated !== null, ids };
}

/** Scores of the tokens, one for each. @throws MODEL_CORRUPT */
export function readScores(keys: GgufKeys, vocabulary: GgufVocabulary, path: string): readonly number[] {
  const name = `${TOKENIZER_KEY}scores`;
  const scores = numbersOf(keys, name, vocabulary.tokens.length, path);
  if (scores === null) throw corruptTokenizer(path, `${name} is missing`);
  if (scores.some((score) => Number.isNaN(score)))
    throw corruptTokenizer(path, `${name} has a value that is no number`);
  return scores;
}

/** The merges as pairs of tokens, best first, each once; null: the file has none. @throws MODEL_CORRUPT */
export function readMerges(
  keys: GgufKeys,
  { ids }: Pick<GgufVocabulary, 'ids'>,
  path: string,
): readonly (readonly [string, string])[] | null {
  const name = `${TOKENIZER_KEY}merges`;
  const texts = textsOf(keys, name, MOST_MERGES, path);
  if (texts === null) return null;
  // The first of two equal ones has the rank that counts.
  return [...new Set(texts)].map((text) => {
    // A part is at least one character, which may be a space.
    const space = text.indexOf(' ', 1);
    const [left, right] = [text.slice(0, Math.max(space, 0)), text.slice(space + 1)];
    if (space < 0 || right === '') {
      throw corruptTokenizer(path, `${name} has ${shown(text)}, expected two tokens with a space between`);
    }
    for (const part of [left, right, left + right]) {
      if (!ids.has(part)) {
        throw corruptTokenizer(path, `${name} has ${shown(text)}, and ${shown(part)} is no token`);
      }
    }
    return [left, right] as const;
  });
}

/** The id of a special token, as "bos" or "eos"; null: the file names none. @throws MODEL_CORRUPT */
export function tokenIdOf(keys: GgufKeys, kind: string, tokenCount: number, path: string): number | null {
  const name = `${TOKENIZER_KEY}${kind}_token_id`;
  const id = keys.get(name);
  if (id === undefined || id === -1 || id === NO_TOKEN) return null;
  if (typeof id !== 'number' || !Number.isInteger(id) || id < 0 || id >= tokenCount) {
    throw corruptTokenizer(path, `${name} is ${shown(id)}, expected an id below ${tokenCount}`);
  }
  return id;
}

/** A switch of the tokenizer; null: the file does not say. @throws MODEL_CORRUPT */
export function switchOf(keys: GgufKeys, kind: string, path: string): boolean | null {
  const name = `${TOKENIZER_KEY}${kind}`;
  const value = keys.get(name);
  if (value === undefined) return null;
  if (typeof value !== 'boolean') throw corruptTokenizer(path, `${name} is ${shown(value)}, expected true or false`);
  return value;
}

/** A name of the tokenizer, as "model" or "pre"; null: the file has none. @throws MODEL_CORRUPT */
export function nameOf(keys: GgufKeys, kind: string, path: string): string | null {
  const name = `${TOKENIZER_KEY}${kind}`;
  const value = keys.get(name);
  if (value === undefined) return null;
  if (typeof value !== 'string') throw corruptTokenizer(path, `${name} is ${shown(value)}, expected a name`);
  return value;
}

/** Chat templates by their names; the one without a name is "default". @throws MODEL_CORRUPT */
export function chatTemplatesOf(keys: GgufKeys, path: string): ReadonlyMap<string, string> {
  const templates = new Map<string, string>();
  for (const [key, value] of keys) {
    if (key !== TEMPLATE_KEY && !key.startsWith(`${TEMPLATE_KEY}.`)) continue;
    if (typeof value !== 'string') throw corruptTokenizer(path, `${key} is ${shown(value)}, expected a text`);
    if (value.length > MOST_TEMPLATE_CHARACTERS) {
      throw corruptTokenizer(
        path,
        `${key} has ${value.length} characters, expected at most ${MOST_TEMPLATE_CHARACTERS}`,
      );
    }
    templates.set(key === TEMPLATE_KEY ? 'default' : key.slice(TEMPLATE_KEY.length + 1), value);
  }
  return templates;
}

function listOf(keys: GgufKeys, name: string, path: string): readonly GgufScalar[] | null {
  const value = keys.get(name);
  if (value === undefined) return null;
  if (typeof value !== 'object') throw corruptTokenizer(path, `${name} is ${shown(value)}, expected a list`);
  return value;
}

function textsOf(keys: GgufKeys, name: string, most: number, path: string): readonly string[] | null {
  const list = listOf(keys, name, path);
  if (list === null) return null;
  if (list.length > most) throw corruptTokenizer(path, `${name} has ${list.length} entries, expected at most ${most}`);
  let characters = 0;
  for (const [index, text] of list.entries()) {
    if (typeof text !== 'string')
      throw corruptTokenizer(path, `${name} has ${shown(text)} at ${index}, expected a text`);
    // A merge has two tokens and a space.
    if (text.length > 2 * MOST_TOKEN_CHARACTERS + 1) {
      throw corruptTokenizer(path, `${name} has a text of ${text.length} characters at ${index}`);
    }
    characters += text.length;
  }
  if (characters > MOST_CHARACTERS) {
    throw corruptTokenizer(path, `${name} has ${characters} characters in all, expected at most ${MOST_CHARACTERS}`);
  }
  return list as readonly string[];
}

function numbersOf(keys: GgufKeys, name: string, count: number, path: string): readonly number[] | null {
  const list = listOf(keys, name, path);
  if (list === null) return null;
  if (list.length !== count) {
    throw corruptTokenizer(path, `${name} has ${list.length} entries for ${count} tokens`);
  }
  const strange = list.find((value) => typeof value !== 'number');
  if (strange !== undefined) throw corruptTokenizer(path, `${name} has ${shown(strange)}, expected numbers`);
  return list as readonly number[];
}

/** A value in the words of an error, which a damaged file must not make long. */
function shown(value: unknown): string {
  return typeof value === 'object' ? 'a list' : JSON.stringify(value).slice(0, 100);
}
