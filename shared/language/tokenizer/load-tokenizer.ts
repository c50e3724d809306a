import { join } from 'node:path';
import * as tokenizersPackage from '@huggingface/tokenizers';
import { z } from 'zod';
import { OdmoeError } from '../../base/errors/odmoe-error.js';
import { fileExists, parseJson, readJsonFile, readModelFile, type FileErrors } from '../../base/files/read-file.js';
import type { ChatMessage } from '../../wire/messages.js';
import { chatTemplateFrom, type ChatTemplate } from './chat-template.js';
import { SpecialNames } from './special-names.js';
import { longestTokenBytes } from './longest-token.js';
import { tokenBytesBy } from './token-bytes.js';
import type { ChatContext, Tokenizer } from './tokenizer.js';

/** The parts of @huggingface/tokenizers that are used. The package's own declarations (0.2.0) name modules that TypeScript does not find. */
interface TokenizerEngine {
  encode(text: string, options: { add_special_tokens: boolean }): { ids: (number | undefined)[] };
  /** `tokenIds` must not be empty. */
  decode(tokenIds: number[], options: { clean_up_tokenization_spaces: boolean }): string;
  id_to_token(tokenId: number): string | undefined;
  get_vocab(): Map<string, number>;
  get_added_tokens_decoder(): Map<number, { special: boolean; content: string }>;
  /** Cuts a normalized text between added tokens into parts, each of which the model encodes by itself; null: it stays whole. */
  pre_tokenizer: ((text: string, options: object) => string[]) | null;
}
const { Tokenizer: EngineConstructor } = tokenizersPackage as unknown as {
  Tokenizer: new (definition: object, config: object) => TokenizerEngine;
};

const TOKENIZER_FILE = 'tokenizer.json';
const CONFIG_FILE = 'tokenizer_config.json';
const TEMPLATE_FILE = 'chat_template.jinja';
/** The largest published tokenizer.json are some 35 MB. */
const TOKENIZER_LIMIT_BYTES = 256 * 1024 * 1024;
const CONFIG_LIMIT_BYTES = 64 * 1024 * 1024;
const TEMPLATE_LIMIT_BYTES = 1024 * 1024;
const REMEDY =
  "copy it from the model's repository, or take tokenizer.json away and give prompts as token ids (--prompt-token-ids)";

const FILE_ERRORS: FileErrors = { missing: 'TOKENIZER_INVALID', invalid: 'TOKENIZER_INVALID', remedy: REMEDY };

/** Small files of a checkpoint that are made from a model's own file, by name; null: they lie in the directory. */
type MadeFiles = ReadonlyMap<string, Uint8Array> | null;

const tokenizerFileSchema = z.looseObject({
  model: z.looseObject({}),
  added_tokens: z.array(z.looseObject({})).default([]),
});
const configSchema = z.looseObject({});

/**
 * Reads tokenizer.json, tokenizer_config.json and chat_template.jinja of a checkpoint or pack; only the first is required. Throws
 * TOKENIZER_INVALID if it is missing, if a file is invalid, or if the chat template does not parse.
 */
export async function loadTokenizer(directory: string, made: MadeFiles = null): Promise<Tokenizer> {
  if (made !== null) return madeTokenizer(directory, made);
  const definition = await readObject(join(directory, TOKENIZER_FILE), TOKENIZER_LIMIT_BYTES, tokenizerFileSchema);
  const configPath = join(directory, CONFIG_FILE);
  const config = (await fileExists(configPath)) ? await readObject(configPath, CONFIG_LIMIT_BYTES, configSchema) : {};
  const templatePath = join(directory, TEMPLATE_FILE);
  const templateText = (await fileExists(templatePath))
    ? (await readModelFile(templatePath, TEMPLATE_LIMIT_BYTES, FILE_ERRORS)).toString('utf8')
    : null;
  return tokenizerFrom(definition, config, chatTemplateFrom(config, templateText, directory), directory);
}

/** As loadTokenizer, but null for a model without tokenizer.json: such a model takes token ids only. */
export async function openTokenizer(directory: string, made: MadeFiles = null): Promise<Tokenizer | null> {
  const isThere = made === null ? await fileExists(join(directory, TOKENIZER_FILE)) : made.has(TOKENIZER_FILE);
  return isThere ? loadTokenizer(directory, made) : null;
}

function madeTokenizer(directory: string, made: ReadonlyMap<string, Uint8Array>): Tokenizer {
  const object = <Shape extends z.ZodType>(name: string, schema: Shape): z.infer<Shape> => {
    const path = join(directory, name);
    return checkedObject(parseJson(made.get(name) ?? Buffer.from('{}'), path, FILE_ERRORS), path, schema);
  };
  const config = object(CONFIG_FILE, configSchema);
  const template = chatTemplateFrom(config, null, directory);
  return tokenizerFrom(object(TOKENIZER_FILE, tokenizerFileSchema), config, template, directory);
}

function tokenizerFrom(
  definition: object,
  config: object,
  template: ChatTemplate | null,
  directory: string,
): Tokenizer {
  const engine = createEngine(definition, config, directory);
  let vocabularySize = 0;
  for (const id of engine.get_vocab().values()) vocabularySize = Math.max(vocabularySize, id + 1);
  const special = new Set<number>();
  const added = engine.get_added_tokens_decoder();
  for (const [id, token] of added) if (token.special) special.add(id);
  const bytesOf = tokenBytesBy(definition);

  const specialNames = new Set([...added.values()].filter((token) => token.special).map(({ content }) => content));
  const names = new SpecialNames(specialNames);

  const encodeWith = (text: string, addSpecialTokens: boolean): number[] => {
    if (text === '') return [];
    const { ids } = engine.encode(text, { add_special_tokens: addSpecialTokens });
    return ids.map((id) => {
      if (id !== undefined) return id;
      throw new OdmoeError('REQUEST_INVALID', `the tokenizer of ${directory} has no token for a part of the text`);
    });
  };

  const renderChat = (messages: readonly ChatMessage[], context: ChatContext): string => {
    if (template !== null) return template.render(messages, context);
    throw new OdmoeError(
      'REQUEST_INVALID',
      `the model in ${directory} has no chat template, so it cannot take chat messages; send plain text instead`,
    );
  };

  return {
    encode: (text) => encodeWith(text, true),
    encodeRendered: (text) => encodeWith(text, false),
    decode(tokenIds) {
      const shown = tokenIds.filter((id) => !special.has(id) && engine.id_to_token(id) !== undefined);
      return shown.length === 0 ? '' : engine.decode(shown, { clean_up_tokenization_spaces: false });
    },
    renderChat,
    encodeChat(messages, context) {
      const { guard, ...guarded } = names.guarded(messages, context);
      const rendered = renderChat(guarded.messages, guarded.context);
      if (guard === null) return encodeWith(rendered, false);
      return withoutGuard(engine, guard, specialNames, () => encodeWith(rendered, false));
    },
    isSpecial: (tokenId) => special.has(tokenId),
    tokenBytes(tokenId) {
      const token = engine.id_to_token(tokenId);
      if (token === undefined) return new Uint8Array(0);
      return special.has(tokenId) ? new TextEncoder().encode(token) : bytesOf(token, added.has(tokenId));
    },
    hasChatTemplate: template !== null,
    chatTemplateSource: template?.source ?? null,
    vocabularySize,
    longestTokenBytes: longestTokenBytes(definition, engine.get_vocab().keys()),
  };
}

/** Encodes with an engine that leaves out the guard once it has looked for the names of special tokens. */
function withoutGuard<Result>(
  engine: TokenizerEngine,
  guard: string,
  specialNames: ReadonlySet<string>,
  encode: () => Result,
): Result {
  const cut = engine.pre_tokenizer;
  // The engine's model knows the names of special tokens, so no part may be such a name as a whole.
  const apart = (part: string): string[] => (specialNames.has(part) ? [...part] : [part]);
  engine.pre_tokenizer = (text, options) => {
    const plain = text.replaceAll(guard, '');
    return (cut === null ? [plain] : cut(plain, options)).flatMap(apart);
  };
  try {
    return encode();
  } finally {
    engine.pre_tokenizer = cut;
  }
}

function createEngine(definition: object, config: object, directory: string): TokenizerEngine {
  try {
    return new EngineConstructor(definition, config);
  } catch (thrown) {
    const reason = thrown instanceof Error ? thrown.message : String(thrown);
    throw new OdmoeError(
      'TOKENIZER_INVALID',
      `${join(directory, TOKENIZER_FILE)}: not a tokenizer that can be used (${reason}); ${REMEDY}`,
      { cause: thrown },
    );
  }
}

async function readObject<Shape extends z.ZodType>(
  path: string,
  limitBytes: number,
  schema: Shape,
): Promise<z.infer<Shape>> {
  return checkedObject(await readJsonFile(path, limitBytes, FILE_ERRORS), path, schema);
}

function checkedObject<Shape extends z.ZodType>(value: unknown, path: string, schema: Shape): z.infer<Shape> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const where = issue === undefined ? '' : `${issue.path.join('.')}: ${issue.message}`;
  throw new OdmoeError('TOKENIZER_INVALID', `${path}: not a tokenizer file (${where}); ${REMEDY}`);
}
