import { OdmoeError } from '../base/errors/odmoe-error.js';
import type { ChatMessage, ToolCall } from './messages.js';

/** Roles that chat templates know. A template may accept fewer. */
const MESSAGE_ROLES: readonly string[] = ['system', 'developer', 'user', 'assistant', 'tool'];
/** Most characters of a wrong role or name that are shown. */
const SHOWN_LIMIT = 40;

/** Most messages of one chat. */
export const MESSAGES_LIMIT = 8192;
/** Most calls of one message, the most characters (UTF-16 units) of an id or a name, and of the arguments of one call. */
export const TOOL_CALLS_LIMIT = 128;
export const TOOL_CALL_NAME_LENGTH_LIMIT = 256;
export const TOOL_ARGUMENTS_LENGTH_LIMIT = 1024 * 1024;

/** Rules for the messages of any chat. A template may have further rules. @throws REQUEST_INVALID naming the field */
export function requireMessages(messages: readonly ChatMessage[]): void {
  if (messages.length > MESSAGES_LIMIT) {
    throw invalid('messages', `${messages.length} messages were given; at most ${MESSAGES_LIMIT} are taken`);
  }
  for (const [index, message] of messages.entries()) requireMessage(message, `messages[${index}]`);
}

function requireMessage(
  { role, toolCalls = [], toolCallId = '', reasoningContent = '' }: ChatMessage,
  at: string,
): void {
  if (!MESSAGE_ROLES.includes(role)) {
    const shown = JSON.stringify(role.slice(0, SHOWN_LIMIT));
    throw invalid(`${at}.role`, `${at} has the role ${shown}; it must be one of ${MESSAGE_ROLES.join(', ')}`);
  }
  if (role !== 'assistant' && toolCalls.length > 0) {
    throw invalid(`${at}.tool_calls`, `${at} has calls of tools and the role ${role}; only an assistant calls`);
  }
  if (role !== 'assistant' && reasoningContent !== '') {
    throw invalid(`${at}.reasoning_content`, `${at} has reasoning and the role ${role}; only an assistant has it`);
  }
  if (role !== 'tool' && toolCallId !== '') {
    throw invalid(`${at}.tool_call_id`, `${at} answers a call and has the role ${role}; it must be tool`);
  }
  requireShort(`${at}.tool_call_id`, toolCallId, TOOL_CALL_NAME_LENGTH_LIMIT);
  if (toolCalls.length > TOOL_CALLS_LIMIT) {
    throw invalid(`${at}.tool_calls`, `${at} has ${toolCalls.length} calls; at most ${TOOL_CALLS_LIMIT} are taken`);
  }
  for (const [index, call] of toolCalls.entries()) requireCall(call, `${at}.tool_calls[${index}]`);
}

/** A client sends an answer's calls back unchanged. Their arguments may be cut or invalid JSON, so only the template judges them. */
function requireCall(call: ToolCall, at: string): void {
  if (call.name === '') throw invalid(`${at}.name`, `${at} has no name; give the function that was called`);
  requireShort(`${at}.name`, call.name, TOOL_CALL_NAME_LENGTH_LIMIT);
  requireShort(`${at}.id`, call.id, TOOL_CALL_NAME_LENGTH_LIMIT);
  requireShort(`${at}.arguments`, call.arguments, TOOL_ARGUMENTS_LENGTH_LIMIT);
}

function requireShort(field: string, text: string, limit: number): void {
  if (text.length <= limit) return;
  throw invalid(field, `${field} has ${text.length} characters; at most ${limit} are taken`);
}

function invalid(field: string, message: string): OdmoeError {
  return new OdmoeError('REQUEST_INVALID', message, { field });
}
