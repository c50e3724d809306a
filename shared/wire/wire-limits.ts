/**
 * Limits on the contents of messages of proto/odmoe/v1. The bytes of a message are checked against this table before anything is built from them
 * (wire-check.ts): on the wire a list of empty messages takes two bytes an element, but a hundred times as many once it is decoded. A list of
 * the wire that is missing in the table is a mistake, and stops the start.
 */
import { ALTERNATIVES_LIMIT, PARTS_LIMIT } from './output-format.js';
import { LOGIT_BIAS_LIMIT } from './sampling-options.js';
import { MESSAGES_LIMIT, TOOL_CALLS_LIMIT } from './chat-message-validation.js';
import { LOGPROBS_RANGE, STOP_STRINGS_LIMIT } from './generate-validation.js';
import {
  COUNTS_LIMIT,
  MEGABYTE_BYTES,
  MESSAGE_SIZE_LIMIT_BYTES,
  PACK_SOURCES_LIMIT,
  PLAIN_MESSAGE_LIMIT_BYTES,
  PROMPT_LOGPROBS_TOKENS,
  ROWS_LIMIT,
} from './limits.js';
import { TEMPLATE_ARGUMENTS_LIMIT } from './template-arguments.js';

/** Most tokens of a sequence, and most iterations of an answer. */
const TOKENS_LIMIT = 2 ** 22;
/** Most daemons of a cluster, layers of a model and experts of a model in messages. */
const NODES_LIMIT = 4096;
const LAYERS_LIMIT = 4096;
const EXPERTS_LIMIT = 16_384;

/** Most elements of each list, by message and field. */
export const LIST_LIMITS: Readonly<Record<string, number>> = {
  'ChatMessage.tool_calls': TOOL_CALLS_LIMIT,
  'GenerateRequest.messages': MESSAGES_LIMIT,
  'GenerateRequest.prompt_token_ids': 2 ** 20,
  'GenerateRequest.stop': STOP_STRINGS_LIMIT,
  'GenerateRequest.template_arguments': TEMPLATE_ARGUMENTS_LIMIT,
  'SamplingOptions.logit_bias': LOGIT_BIAS_LIMIT,
  'OutputFormat.alternatives': ALTERNATIVES_LIMIT,
  'OutputSequence.parts': PARTS_LIMIT,
  'PromptLogprobs.tokens': PROMPT_LOGPROBS_TOKENS,
  'PromptToken.top': LOGPROBS_RANGE.most,
  'Started.prompt_token_ids': TOKENS_LIMIT,
  'Token.top': LOGPROBS_RANGE.most,
  'Finished.nodes': NODES_LIMIT,
  'SepMetrics.correct_by_iteration': TOKENS_LIMIT,
  'SepMetrics.activated_by_iteration': TOKENS_LIMIT,
  'CountsReply.counts': COUNTS_LIMIT,
  'StatusReply.nodes': NODES_LIMIT,
  'StatusReply.problems': NODES_LIMIT,
  'StatusReply.layer_waits': LAYERS_LIMIT,
  'StatusReply.worker_waits': NODES_LIMIT,
  'StatusReply.links': NODES_LIMIT,
  'StatusReply.drained': NODES_LIMIT,
  'TrustStatus.waiting': NODES_LIMIT,
  'ListNodesReply.nodes': NODES_LIMIT,
  'ListNodesReply.waiting': NODES_LIMIT,
  'ListTokensReply.tokens': NODES_LIMIT,
  'JoinTokenLine.used_by': NODES_LIMIT,
  'StatusReply.worker_hops': NODES_LIMIT,
  'WorkerGroup.worker_ids': NODES_LIMIT,
  'Placement.workers': NODES_LIMIT,
  'Placement.groups': NODES_LIMIT,
  'Prospect.sources': PACK_SOURCES_LIMIT,
  'Predict.rows': ROWS_LIMIT,
  'Predict.experts': EXPERTS_LIMIT,
  'Predict.workers': EXPERTS_LIMIT,
  'Predict.critical': EXPERTS_LIMIT,
  'Announce.rows': ROWS_LIMIT,
  'Announce.experts': EXPERTS_LIMIT,
  'Announce.critical': EXPERTS_LIMIT,
  'BeginSequence.token_ids': TOKENS_LIMIT,
  'AlignToken.kept': ROWS_LIMIT,
  'WorkerKept.experts': EXPERTS_LIMIT,
  'Execute.rows': ROWS_LIMIT,
  'Execute.experts': EXPERTS_LIMIT,
  'ExpertRows.rows': ROWS_LIMIT,
  'ExpertRows.upper': ROWS_LIMIT,
  'Release.rows': ROWS_LIMIT,
  'Release.experts': EXPERTS_LIMIT,
  'ExecuteResult.experts': EXPERTS_LIMIT,
  'KeptExperts.experts': EXPERTS_LIMIT,
};

/** Messages that may be longer than PLAIN_MESSAGE_LIMIT_BYTES: they carry tensors, or a number for each token or daemon. */
export const LONG_MESSAGES: Readonly<Record<string, number>> = {
  Execute: MESSAGE_SIZE_LIMIT_BYTES,
  ExecuteResult: MESSAGE_SIZE_LIMIT_BYTES,
  AlignRows: MESSAGE_SIZE_LIMIT_BYTES,
  BeginSequence: 16 * MEGABYTE_BYTES,
  AlignToken: 8 * MEGABYTE_BYTES,
  Started: 16 * MEGABYTE_BYTES,
  Finished: 16 * MEGABYTE_BYTES,
  StatusReply: 8 * MEGABYTE_BYTES,
};

/** Most elements of all lists of one message together: inner messages, and numbers and texts. */
export const INNER_MESSAGES_LIMIT = 131_072;
export const INNER_VALUES_LIMIT = 4 * 1024 * 1024;
/** Most inner messages of a client's request. They cost more: they are checked and go through a chat template. */
export const ASKED_MESSAGES_LIMIT = 32_768;
/** Most fields beyond a message's known fields and lists: fields of a later version, or repeated ones. */
export const SPARE_FIELDS_LIMIT = 64;

/** Most bytes of a message with that name. */
export function bytesLimitOf(message: string): number {
  return LONG_MESSAGES[message] ?? PLAIN_MESSAGE_LIMIT_BYTES;
}
