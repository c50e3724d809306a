import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { GenerationResult } from '../output/generation-output.js';
import { generationSummary } from '../output/generation-output.js';

/** Errors of a turn after which the same message may be answered. */
const PASSING: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  ...(['NO_MAIN', 'NO_WORKERS', 'WORKER_LOST', 'SHADOW_LOST', 'QUEUE_FULL', 'TIMEOUT'] as const),
  ...(['DEVICE_LOST', 'DEVICE_OUT_OF_MEMORY', 'PACK_INCOMPLETE'] as const),
]);

const MAKE_ROOM =
  '/undo drops the last turn, /clear begins a new conversation, /save FILE keeps this one; then /retry asks again';

/** What the user may do after a turn that failed; null: the error says it. */
export function turnAdvice(code: ErrorCode): string | null {
  if (code === 'PROMPT_TOO_LONG') return `The conversation has become too long for the model. ${MAKE_ROOM}.`;
  return PASSING.has(code) ? '/retry asks again.' : null;
}

/** One line under an answer. `maxTokens` null: it had the room that was left. */
export function turnSummary(result: GenerationResult, maxTokens: number | null): string {
  const { tokens, finished } = result;
  const isFull = finished.finishReason === 'length' && (maxTokens === null || tokens.length < maxTokens);
  const full = isFull ? `; the context is full: ${MAKE_ROOM}` : '';
  const empty = finished.text === '' ? '; the answer has no text, and is not kept (/retry asks again)' : '';
  return `${generationSummary(result)}${full}${empty}`;
}

/** One line under an answer that was stopped. */
export function stoppedSummary(tokens: number, hasText: boolean): string {
  const what = hasText
    ? 'what came stays in the conversation (/undo drops it, /retry asks again)'
    : 'nothing had come (/retry asks again)';
  return `stopped after ${tokens} ${tokens === 1 ? 'token' : 'tokens'}; ${what}`;
}
