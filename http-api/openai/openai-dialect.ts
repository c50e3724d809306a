import type { AnswerProgress, Dialect } from '../delivery/dialect.js';
import { openAiErrorBody } from '../errors/error-answer.js';

/** The text that ends a stream of chunks. */
export const STREAM_END = 'data: [DONE]\n\n';

export function eventOf(chunk: object): string {
  return `data: ${JSON.stringify(chunk)}\n\n`;
}

/** OpenAI's chat and text completions. */
export const OPENAI: Dialect = {
  errorBody: openAiErrorBody,
  streamType: 'text/event-stream; charset=utf-8',
  keepAlive: (progress, request) => keepAliveComment(progress, request.body),
  errorEvent: (error) => eventOf(openAiErrorBody(error)),
};

/** A comment, which clients ignore; with `return_progress` it reports the progress of the answer. */
export function keepAliveComment(progress: AnswerProgress, body: unknown): string {
  const asked = typeof body === 'object' && body !== null && 'return_progress' in body && body.return_progress === true;
  return asked ? `: progress ${JSON.stringify(progressProperties(progress))}\n\n` : ': keep-alive\n\n';
}

function progressProperties(progress: AnswerProgress): object {
  if (progress.phase === 'queued') return { phase: 'queued', requests_before: progress.before };
  if (progress.phase === 'decode') return { phase: 'decode' };
  return { phase: 'prefill', prompt_tokens_done: progress.doneTokens, prompt_tokens: progress.promptTokens };
}
