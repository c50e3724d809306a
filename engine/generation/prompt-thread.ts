/** The thread that makes tokens of prompts. It owns a tokenizer of its own, and answers one message after another. */
import { workerData } from 'node:worker_threads';
import { openTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import { answerQuestions } from '../threads/answer-questions.js';
import { promptTokenIds, type PromptRequest } from './prompt-encoder.js';

/** What the thread is told when it is started. */
export interface PromptThreadData {
  /** Of the pack. */
  directory: string;
}

export interface ThreadPrompt {
  asked: PromptRequest;
  /** The time that a chat template is told. */
  wallMs: number;
}

const { directory } = workerData as PromptThreadData;
// What it fails with is told to whoever asks.
const opened = openTokenizer(directory);
opened.catch(() => undefined);

answerQuestions(async ({ asked, wallMs }: ThreadPrompt) =>
  Uint32Array.from(promptTokenIds(asked, await opened, wallMs)),
);
