/** How much the JSON of a request's body may hold. It is counted while the body comes, before anything is built of it (body-scan.ts). */
import { LOGIT_BIAS_LIMIT } from '../../shared/wire/sampling-options.js';
import { MESSAGES_LIMIT, TOOL_CALLS_LIMIT } from '../../shared/wire/chat-message-validation.js';
import { STOP_STRINGS_LIMIT } from '../../shared/wire/generate-validation.js';
import { TEMPLATE_ARGUMENTS_LIMIT } from '../../shared/wire/template-arguments.js';

/** Parts of one message's content, likewise of what a tool gave. */
const CONTENT_PARTS_LIMIT = 4096;
/** Tools of one request. */
const TOOLS_LIMIT = 1024;
/** Token ids of one request, in whichever lists. */
const TOKEN_IDS_LIMIT = 1024 * 1024;
/** Most tokens of one text: it is made at once, while nothing else is done. */
export const DETOKENIZE_LIMIT = 65_536;
/** Prompts of one request. */
const PROMPTS_LIMIT = 1024;
/** Of a schema, or of a tool with its own, as it is sent; without white space it may have SCHEMA_TEXT_LIMIT_BYTES. */
const SCHEMA_LIMIT_BYTES = 1024 * 1024;

/** What one place of a body may hold. */
export interface PlaceLimits {
  /** Elements of a list, members of an object. */
  entries?: number;
  /** Elements that are lists or objects themselves. */
  nested?: number;
  bytes?: number;
  /** Its numbers count as token ids, of which there may be more than of other values. */
  areTokenIds?: boolean;
  /** It is a picture or a file: what stands there is not kept, as no model here reads it. */
  isPicture?: boolean;
}

const PARTS: PlaceLimits = { entries: CONTENT_PARTS_LIMIT };
const TOKEN_IDS: PlaceLimits = { entries: TOKEN_IDS_LIMIT, areTokenIds: true };
const SCHEMA: PlaceLimits = { bytes: SCHEMA_LIMIT_BYTES };
const PICTURE: PlaceLimits = { isPicture: true };

/** Places of all dialects: "messages[].content" is the content of any message. */
export const BODY_PLACES: Readonly<Record<string, PlaceLimits>> = {
  messages: { entries: MESSAGES_LIMIT },
  input: { entries: MESSAGES_LIMIT },
  tools: { entries: TOOLS_LIMIT },
  functions: { entries: TOOLS_LIMIT },
  'tools[]': SCHEMA,
  'functions[]': SCHEMA,
  stop: { entries: STOP_STRINGS_LIMIT },
  stop_sequences: { entries: STOP_STRINGS_LIMIT },
  'options.stop': { entries: STOP_STRINGS_LIMIT },
  logit_bias: { entries: LOGIT_BIAS_LIMIT },
  chat_template_kwargs: { entries: TEMPLATE_ARGUMENTS_LIMIT },
  prompt: { ...TOKEN_IDS, nested: PROMPTS_LIMIT },
  'prompt[]': TOKEN_IDS,
  context: TOKEN_IDS,
  tokens: { entries: DETOKENIZE_LIMIT, areTokenIds: true },
  response_format: SCHEMA,
  text: SCHEMA,
  output_config: SCHEMA,
  format: SCHEMA,
  system: PARTS,
  'messages[].content': PARTS,
  'messages[].content[].content': PARTS,
  'messages[].tool_calls': { entries: TOOL_CALLS_LIMIT },
  'messages[].images': PARTS,
  'input[].content': PARTS,
  'input[].output': PARTS,
  'input[].summary': PARTS,
  images: PARTS,
  'images[]': PICTURE,
  'messages[].images[]': PICTURE,
  'messages[].content[].image_url': PICTURE,
  'messages[].content[].image_url.url': PICTURE,
  'messages[].content[].input_audio.data': PICTURE,
  'messages[].content[].file.file_data': PICTURE,
  'messages[].content[].source.data': PICTURE,
  'messages[].content[].source.url': PICTURE,
  'messages[].content[].content[].source.data': PICTURE,
  'input[].content[].image_url': PICTURE,
  'input[].content[].file_data': PICTURE,
  'input[].output[].image_url': PICTURE,
  'input[].output[].file_data': PICTURE,
};

/** Of a whole body. */
export interface BodyLimits {
  bytes: number;
  /** Lists and objects within one another. */
  depth: number;
  /** Entries of all lists and objects together, without token ids. */
  values: number;
  tokenIds: number;
}

export const BODY_LIMITS: BodyLimits = {
  bytes: 16 * 1024 * 1024,
  depth: 128,
  values: 128 * 1024,
  tokenIds: TOKEN_IDS_LIMIT,
};
