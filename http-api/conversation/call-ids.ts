import { createHash } from 'node:crypto';
import type { ChatMessage } from '../../shared/wire/messages.js';

/** Mistral's templates take ids of this form only. */
const NINE = /^[A-Za-z0-9]{9}$/;

/**
 * Ids of an answer's calls. They follow from the conversation and the answer's number: the same request has the same ids, another turn and
 * another answer have others.
 */
export function callIdsFor(messages: readonly ChatMessage[], answer = 0): (index: number) => string {
  let base: string | null = null;
  return (index) => {
    base ??= digest(JSON.stringify(messages));
    return `call_${digest(`${base} ${answer} ${index}`).slice(0, 24)}`;
  };
}

/** Whether a template takes ids of nine letters and digits only. */
export function wantsShortIds(source: string): boolean {
  return /length\s*!=\s*9\b/.test(source);
}

/** The messages with ids of nine letters and digits, each id always the same one. */
export function withShortIds(messages: readonly ChatMessage[]): ChatMessage[] {
  const short = (id: string): string => (NINE.test(id) ? id : digest(id).slice(0, 9));
  return messages.map((message) => {
    const { toolCalls, toolCallId } = message;
    return {
      ...message,
      ...(toolCalls === undefined ? {} : { toolCalls: toolCalls.map((call) => ({ ...call, id: short(call.id) })) }),
      ...(toolCallId === undefined ? {} : { toolCallId: short(toolCallId) }),
    };
  });
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
