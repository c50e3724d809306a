import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { TEMPLATE_ARGUMENT_BYTES_LIMIT } from '../../shared/wire/template-arguments.js';
import { toolJson } from './plain-messages.js';
import type { ChatRequest } from './chat-request.js';

/** Most functions of one request. */
export const TOOLS_LIMIT = 128;
/** Most bytes of all functions as JSON. The other half of the limit is for the text around each function, and for other variables. */
const TOOLS_LIMIT_BYTES = TEMPLATE_ARGUMENT_BYTES_LIMIT / 2;
const TOOL_NAME = /^[A-Za-z0-9_.-]{1,64}$/;
const NAME_SHOWN_LIMIT = 40;

/** Checks the rules for any model. The messages themselves are checked with the request. @throws REQUEST_INVALID naming the field */
export function checkChat(chat: ChatRequest): void {
  checkTools(chat);
  checkToolChoice(chat);
  if (chat.continueLast) checkContinued(chat);
}

function checkTools({ tools }: ChatRequest): void {
  if (tools.length > TOOLS_LIMIT) {
    throw invalid('tools', `${tools.length} tools were given; at most ${TOOLS_LIMIT} are taken`);
  }
  const bytes = tools.reduce((sum, tool) => sum + Buffer.byteLength(toolJson(tool)), 0);
  if (bytes > TOOLS_LIMIT_BYTES) {
    throw invalid('tools', `tools of ${bytes} bytes were given; at most ${TOOLS_LIMIT_BYTES} are taken`);
  }
  const names = new Set<string>();
  for (const [index, { name, parameters }] of tools.entries()) {
    const field = `tools[${index}]`;
    const shown = JSON.stringify(name.slice(0, NAME_SHOWN_LIMIT));
    if (!TOOL_NAME.test(name)) {
      throw invalid(field, `the tool name ${shown} must be 1 to 64 letters, digits, points, underscores and hyphens`);
    }
    if (names.has(name)) throw invalid(field, `the tool ${shown} was given twice`);
    names.add(name);
    const { type } = parameters as { type?: unknown };
    if (type !== undefined && type !== 'object') {
      throw invalid(field, `the parameters of the tool ${shown} are no object; their schema's type must be "object"`);
    }
  }
}

function checkToolChoice({ tools, toolChoice }: ChatRequest): void {
  if (toolChoice === 'auto' || toolChoice === 'none') return;
  if (tools.length === 0) throw invalid('tool_choice', 'a call of a tool is asked for, but no tools were given');
  if (toolChoice === 'required' || tools.some(({ name }) => name === toolChoice.name)) return;
  const shown = JSON.stringify(toolChoice.name.slice(0, NAME_SHOWN_LIMIT));
  throw invalid('tool_choice', `the tool ${shown} is to be called, but is not among the tools`);
}

function checkContinued({ messages, toolChoice, responseFormat }: ChatRequest): void {
  const last = messages.at(-1);
  const field = `messages[${messages.length - 1}]`;
  if (last?.role !== 'assistant') {
    throw invalid(field, "the answer can go on with an assistant's message only; let the last message be one");
  }
  if (last.content === '' || (last.toolCalls ?? []).length > 0) {
    throw invalid(field, 'the message that the answer goes on with must have a content, and no calls');
  }
  if (responseFormat !== null) {
    throw invalid('response_format', 'a format is of a whole answer; it cannot go on with a message that has begun');
  }
  if (toolChoice !== 'auto' && toolChoice !== 'none') {
    throw invalid('tool_choice', 'a call cannot be forced where the answer goes on with a message that has begun');
  }
}

function invalid(field: string, message: string): OdmoeError {
  return new OdmoeError('REQUEST_INVALID', message, { field });
}
