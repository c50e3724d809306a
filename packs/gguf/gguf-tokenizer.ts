import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { endTokensOf } from './gguf-tokenizer-ends.js';
import {
  GGUF_TOKEN,
  chatTemplatesOf,
  corruptTokenizer,
  nameOf,
  readMerges,
  readScores,
  readVocabulary,
  switchOf,
  tokenIdOf,
  type GgufVocabulary,
} from './gguf-tokenizer-keys.js';
import { mergesFromScores, ordinaryMerges } from './gguf-tokenizer-merges.js';
import { GGUF_SPLITS, type GgufSplit } from './gguf-tokenizer-splits.js';
import type { GgufKeys } from './gguf-types.js';

/** The tokenizer of a GGUF file as the files of a checkpoint, to be written as JSON. */
export interface GgufTokenizerFiles {
  'tokenizer.json': object;
  'tokenizer_config.json': object;
}

type Merge = readonly [string, string];

/** SentencePiece's sign for a space. */
const SPACE_SIGN = '\u2581';
const PADDING = /^\[PAD\d+\]$/;
const OTHER_FILE = "take another file of this model, or pack the model's checkpoint";

/** The parts of tokenizer.json that differ from tokenizer to tokenizer. */
interface Parts {
  normalizer: object | null;
  preTokenizer: object | null;
  decoder: object;
  model: object;
  /** Plain prompts begin with the token for a beginning, if the file does not say; 'always': whatever it says. */
  addsBos: boolean | 'always';
}

/**
 * tokenizer.json and tokenizer_config.json of a GGUF file, as its makers' checkpoint has them.
 * @throws MODEL_CORRUPT: a key of the tokenizer is damaged. MODEL_UNSUPPORTED: a kind of tokenizer, or a cut into words, that is not known
 */
export function ggufTokenizerFiles(keys: GgufKeys, path: string): GgufTokenizerFiles {
  const kind = nameOf(keys, 'model', path);
  const cut = nameOf(keys, 'pre', path);
  const given = readVocabularyOf(keys, kind, path);
  // The converter writes the runs of spaces among Gemma's tokens as spaces; its merges have their signs.
  const isGemma = kind === 'gemma4' || (kind === 'gpt2' && cut === 'gemma4');
  const vocabulary = isGemma ? withSpaceSigns(given) : given;
  const parts = isGemma
    ? gemmaParts(keys, vocabulary, path)
    : kind === 'llama'
      ? sentencePieceParts(keys, vocabulary, path)
      : byteLevelParts(keys, vocabulary, splitOf(cut, path), path);
  const boundaries = {
    beginning: boundaryOf(keys, vocabulary, 'bos', parts.addsBos, path),
    end: boundaryOf(keys, vocabulary, 'eos', false, path),
  };
  return {
    'tokenizer.json': {
      version: '1.0',
      truncation: null,
      padding: null,
      added_tokens: addedTokens(vocabulary, keys, path),
      normalizer: parts.normalizer,
      pre_tokenizer: parts.preTokenizer,
      post_processor: postProcessor(boundaries),
      decoder: parts.decoder,
      model: parts.model,
    },
    'tokenizer_config.json': configOf(keys, vocabulary, boundaries, path),
  };
}

function readVocabularyOf(keys: GgufKeys, kind: string | null, path: string): GgufVocabulary {
  if (kind !== 'gpt2' && kind !== 'llama' && kind !== 'gemma4') {
    const what =
      kind === null ? 'it has no tokenizer' : `its tokenizer is of the kind ${JSON.stringify(kind.slice(0, 100))}`;
    throw new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${path}: ${what}, and gpt2, llama and gemma4 can be read; ${OTHER_FILE}`,
    );
  }
  return readVocabulary(keys, path);
}

function splitOf(name: string | null, path: string): GgufSplit {
  const split = GGUF_SPLITS.get(name ?? '');
  if (split !== undefined) return split;
  const what =
    name === null
      ? 'it does not say how a text is cut into words (tokenizer.ggml.pre), as old files do not'
      : `it cuts a text into words in the way ${JSON.stringify(name.slice(0, 100))} (tokenizer.ggml.pre), which is not known`;
  throw new OdmoeError('MODEL_UNSUPPORTED', `${path}: ${what}; ${OTHER_FILE}`);
}

/** Byte-level BPE, as GPT-2 has it. */
function byteLevelParts(keys: GgufKeys, vocabulary: GgufVocabulary, split: GgufSplit, path: string): Parts {
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false };
  const splits = split.patterns.map((pattern) => ({
    type: 'Split',
    pattern: { Regex: pattern },
    behavior: 'Isolated',
    invert: false,
  }));
  return {
    normalizer: split.composes ? { type: 'NFC' } : null,
    preTokenizer: { type: 'Sequence', pretokenizers: [...splits, byteLevel] },
    decoder: byteLevel,
    model: bpeModel(vocabulary, requiredMerges(keys, vocabulary, path), {
      unknown: null,
      byteFallback: false,
      ignoresMerges: split.ignoresMerges,
    }),
    addsBos: split.addsBos,
  };
}

/** SentencePiece's BPE, in the form of Llama's and Mixtral's tokenizer.json. */
function sentencePieceParts(keys: GgufKeys, vocabulary: GgufVocabulary, path: string): Parts {
  const merges = readMerges(keys, vocabulary, path);
  const ordinary =
    merges === null
      ? mergesFromScores(vocabulary, readScores(keys, vocabulary, path), path)
      : ordinaryMerges(vocabulary, merges);
  const addsSpace = switchOf(keys, 'add_space_prefix', path) ?? true;
  const prepend = { type: 'Prepend', prepend: SPACE_SIGN };
  const strip = { type: 'Strip', content: ' ', start: 1, stop: 0 };
  return {
    normalizer: addsSpace ? { type: 'Sequence', normalizers: [prepend, toSigns()] } : toSigns(),
    preTokenizer: null,
    decoder: { type: 'Sequence', decoders: [...fromSigns(), ...(addsSpace ? [strip] : [])] },
    model: sentencePieceModel(keys, vocabulary, ordinary, path),
    addsBos: true,
  };
}

/** Gemma 4's BPE: characters and byte tokens as SentencePiece has them, with a list of merges. */
function gemmaParts(keys: GgufKeys, vocabulary: GgufVocabulary, path: string): Parts {
  return {
    normalizer: toSigns(),
    preTokenizer: null,
    decoder: { type: 'Sequence', decoders: fromSigns() },
    model: sentencePieceModel(keys, vocabulary, requiredMerges(keys, vocabulary, path), path),
    // llama.cpp does so, too, because converters wrote "false" into early files.
    addsBos: 'always',
  };
}

/** Characters that are no tokens become bytes. The unknown token stands in for vocabularies without bytes. */
function sentencePieceModel(
  keys: GgufKeys,
  vocabulary: GgufVocabulary,
  merges: readonly Merge[],
  path: string,
): object {
  const { tokens, types } = vocabulary;
  const stated = tokenIdOf(keys, 'unknown', tokens.length, path);
  const id = stated ?? types.indexOf(GGUF_TOKEN.unknown);
  return bpeModel(vocabulary, merges, { unknown: tokens[id] ?? null, byteFallback: true, ignoresMerges: false });
}

/** Runs of spaces as pieces with SentencePiece's sign, in a vocabulary where the converter made them user-defined texts. */
function withSpaceSigns(vocabulary: GgufVocabulary): GgufVocabulary {
  const signs = (token: string): string => token.replaceAll(' ', SPACE_SIGN);
  const isRun = (id: number): boolean => {
    const token = vocabulary.tokens[id] ?? '';
    const isUserDefined = vocabulary.types[id] === GGUF_TOKEN.userDefined;
    return isUserDefined && /^ +$/.test(token) && !vocabulary.ids.has(signs(token));
  };
  const tokens = vocabulary.tokens.map((token, id) => (isRun(id) ? signs(token) : token));
  const types = vocabulary.types.map((type, id) => (isRun(id) ? GGUF_TOKEN.normal : type));
  return { ...vocabulary, tokens, types, ids: new Map(tokens.map((token, id) => [token, id])) };
}

function toSigns(): object {
  return { type: 'Replace', pattern: { String: ' ' }, content: SPACE_SIGN };
}

function fromSigns(): readonly object[] {
  const replace = { type: 'Replace', pattern: { String: SPACE_SIGN }, content: ' ' };
  return [replace, { type: 'ByteFallback' }, { type: 'Fuse' }];
}

function requiredMerges(keys: GgufKeys, vocabulary: GgufVocabulary, path: string): readonly Merge[] {
  const merges = readMerges(keys, vocabulary, path);
  if (merges === null) throw corruptTokenizer(path, 'tokenizer.ggml.merges is missing');
  return merges;
}

/** `unknown`: the token for characters without another; null: bytes are the characters, and each has a token. */
function bpeModel(
  vocabulary: GgufVocabulary,
  merges: readonly Merge[],
  { unknown, byteFallback, ignoresMerges }: { unknown: string | null; byteFallback: boolean; ignoresMerges: boolean },
): object {
  return {
    type: 'BPE',
    dropout: null,
    unk_token: unknown,
    continuing_subword_prefix: null,
    end_of_word_suffix: null,
    fuse_unk: unknown !== null,
    byte_fallback: byteFallback,
    ignore_merges: ignoresMerges,
    vocab: Object.fromEntries(withoutPadding(vocabulary)),
    merges,
  };
}

/** All tokens but the padding at the end, which fills the rows of the weights and stands for nothing. */
function withoutPadding({ tokens, types }: GgufVocabulary): readonly (readonly [string, number])[] {
  let count = tokens.length;
  while (count > 0 && types[count - 1] === GGUF_TOKEN.unused && PADDING.test(tokens[count - 1] ?? '')) count -= 1;
  return tokens.slice(0, count).map((token, id) => [token, id]);
}

/** Control tokens are special: no text shows them. User-defined ones are words that are found before a text is cut. */
function addedTokens(vocabulary: GgufVocabulary, keys: GgufKeys, path: string): readonly object[] {
  const ends = new Set(endTokensOf(keys, vocabulary, path));
  const beginning = tokenIdOf(keys, 'bos', vocabulary.tokens.length, path);
  const isSpecial = (id: number): boolean => {
    const type = vocabulary.types[id];
    if (type === GGUF_TOKEN.control || type === GGUF_TOKEN.unknown) return true;
    if (vocabulary.isTyped) return type === GGUF_TOKEN.userDefined && ends.has(id);
    return ends.has(id) || id === beginning;
  };
  return vocabulary.tokens.flatMap((content, id) => {
    const special = isSpecial(id);
    if (!special && vocabulary.types[id] !== GGUF_TOKEN.userDefined) return [];
    return [{ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special }];
  });
}

/** A token at the beginning or the end of every plain prompt. */
interface Boundary {
  id: number;
  token: string;
}

/** Null: there is none. */
interface Boundaries {
  beginning: Boundary | null;
  end: Boundary | null;
}

/** The token of a boundary, if the file asks for it; `byDefault`: if it says nothing. */
function boundaryOf(
  keys: GgufKeys,
  { tokens }: GgufVocabulary,
  kind: 'bos' | 'eos',
  byDefault: boolean | 'always',
  path: string,
): Boundary | null {
  const asked = switchOf(keys, `add_${kind}_token`, path);
  if (byDefault !== 'always' && !(asked ?? byDefault)) return null;
  const id = tokenIdOf(keys, kind, tokens.length, path);
  const token = tokens[id ?? -1];
  if (id !== null && token !== undefined) return { id, token };
  if (asked !== true) return null;
  throw corruptTokenizer(path, `tokenizer.ggml.add_${kind}_token is true, and there is no ${kind}_token_id`);
}

/** Puts the tokens around a plain prompt; null: there are none. */
function postProcessor({ beginning, end }: Boundaries): object | null {
  const around = [beginning, end].filter((boundary) => boundary !== null);
  if (around.length === 0) return null;
  const special = (boundary: Boundary | null, sequence: number): readonly object[] =>
    boundary === null ? [] : [{ SpecialToken: { id: boundary.token, type_id: sequence } }];
  const part = (name: string, sequence: number): readonly object[] => [
    ...special(beginning, sequence),
    { Sequence: { id: name, type_id: sequence } },
    ...special(end, sequence),
  ];
  const tokens = around.map(({ token, id }) => [token, { id: token, ids: [id], tokens: [token] }] as const);
  return {
    type: 'TemplateProcessing',
    single: part('A', 0),
    pair: [...part('A', 0), ...part('B', 1)],
    special_tokens: Object.fromEntries(tokens),
  };
}

/** Names of special tokens in tokenizer_config.json, and in a GGUF file. */
const NAMED_TOKENS = { bos_token: 'bos', eos_token: 'eos', unk_token: 'unknown', pad_token: 'padding' } as const;

function configOf(keys: GgufKeys, { tokens }: GgufVocabulary, boundaries: Boundaries, path: string): object {
  const named = Object.entries(NAMED_TOKENS).flatMap(([name, kind]) => {
    const id = tokenIdOf(keys, kind, tokens.length, path);
    return id === null ? [] : [[name, tokens[id]] as const];
  });
  return {
    tokenizer_class: 'PreTrainedTokenizerFast',
    ...Object.fromEntries(named),
    add_bos_token: boundaries.beginning !== null,
    add_eos_token: boundaries.end !== null,
    clean_up_tokenization_spaces: false,
    ...templateOf(chatTemplatesOf(keys, path)),
  };
}

/** One template stands alone; several are a list with names, of which the reader takes "default". */
function templateOf(templates: ReadonlyMap<string, string>): object {
  const unnamed = templates.get('default');
  if (templates.size === 0) return {};
  if (templates.size === 1 && unnamed !== undefined) return { chat_template: unnamed };
  return { chat_template: [...templates].map(([name, template]) => ({ name, template })) };
}
