/** Limits for the JSON of a request's body. It is counted while the body arrives, before any object is built from it (body-scan.ts). */
import { LOGIT_BIAS_LIMIT } from '../../shared/wire/sampling-options.js';
import { MESSAGES_LIMIT, TOOL_CALLS_LIMIT } from '../../shared/wire/chat-message-validation.js';
import { STOP_STRINGS_LIMIT } from '../../shared/wire/generate-validation.js';
import { TEMPLATE_ARGUMENTS_LIMIT } from '../../shared/wire/template-arguments.js';

/** Most parts of one message's content, or of a tool's output. */
const CONTENT_PARTS_LIMIT = 4096;
/** Most tools of one request. */
const TOOLS_LIMIT = 1024;
/** Most token ids of one request, in all lists together. */
const TOKEN_IDS_LIMIT = 1024 * 1024;
/** Most tokens that are turned into one text. That happens in one step, while other work waits. */
export const DETOKENIZE_LIMIT = 65_536;
/** Most prompts of one request. */
const PROMPTS_LIMIT = 1024;
/** Most bytes of a schema, or of a tool with its schema, as sent. Without white space, SCHEMA_TEXT_LIMIT_BYTES is the limit. */
const SCHEMA_LIMIT_BYTES = 1024 * 1024;

/** Limits for one place of a body. */
export interface PlaceLimits {
  /** Most elements of a list, or properties of an object. */
  entries?: number;
  /** Most elements that are lists or objects themselves. */
  nested?: number;
  bytes?: number;
  /** True: its numbers count as token ids, for which the limit is higher than for other values. */
  areTokenIds?: boolean;
  /** True: it is a picture or a file. Its data is dropped, because no model here reads it. */
  isPicture?: boolean;
  /** True: it is a picture or a file if it is encoded, else a text, which is kept. */
  isPictureIfEncoded?: boolean;
}

const PARTS: PlaceLimits = { entries: CONTENT_PARTS_LIMIT };
const TOKEN_IDS: PlaceLimits = { entries: TOKEN_IDS_LIMIT, areTokenIds: true };
const SCHEMA: PlaceLimits = { bytes: SCHEMA_LIMIT_BYTES };
const PICTURE: PlaceLimits = { isPicture: true };
const PICTURE_OR_TEXT: PlaceLimits = { isPictureIfEncoded: true };

/** The places of all dialects with limits: "messages[].content" is the content of any message. */
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
  'messages[].content[].source.data': PICTURE_OR_TEXT,
  'messages[].content[].source.url': PICTURE,
  'messages[].content[].source.content[].source.data': PICTURE,
  'messages[].content[].content[].source.data': PICTURE_OR_TEXT,
  'input[].content[].image_url': PICTURE,
  'input[].content[].file_data': PICTURE,
  'input[].output[].image_url': PICTURE,
  'input[].output[].file_data': PICTURE,
};

/** Limits for a whole body. */
export interface BodyLimits {
  bytes: number;
  /** Most levels of nested lists and objects. */
  depth: number;
  /** Most entries of all lists and objects together, without token ids. */
  values: number;
  tokenIds: number;
}

export const BODY_LIMITS: BodyLimits = {
  bytes: 16 * 1024 * 1024,
  depth: 128,
  values: 128 * 1024,
  tokenIds: TOKEN_IDS_LIMIT,
};
