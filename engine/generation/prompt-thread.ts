/** The thread that makes tokens of prompts. It owns a tokenizer of its own, and answers one message after another. */
import { parentPort, workerData } from 'node:worker_threads';
import { toOdmoeError } from '../../shared/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/errors/registry.js';
import { openTokenizer } from '../../shared/tokenizer/load-tokenizer.js';
import { promptTokenIds, type PromptRequest } from './prompt-encoder.js';

/** What the thread is told when it is started. */
export interface PromptThreadData {
  /** Of the pack. */
  directory: string;
}

export interface PromptQuestion {
  id: number;
  request: PromptRequest;
  /** The time that a chat template is told. */
  wallMs: number;
}

export type PromptAnswer =
  | { id: number; kind: 'tokens'; tokenIds: Uint32Array }
  | { id: number; kind: 'error'; code: ErrorCode; message: string; field: string | null };

const { directory } = workerData as PromptThreadData;
// What it fails with is told to whoever asks.
const opened = openTokenizer(directory);
opened.catch(() => undefined);

async function answer({ id, request, wallMs }: PromptQuestion): Promise<PromptAnswer> {
  try {
    return { id, kind: 'tokens', tokenIds: Uint32Array.from(promptTokenIds(request, await opened, wallMs)) };
  } catch (thrown) {
    const { code, message, field } = toOdmoeError(thrown);
    return { id, kind: 'error', code, message, field };
  }
}

parentPort?.on('message', (question: PromptQuestion) => {
  void answer(question).then((told) => parentPort?.postMessage(told));
});
