/** The thread that turns prompts into tokens. It has its own tokenizer and answers one message after another. */
import { workerData } from 'node:worker_threads';
import { openTokenizer } from '../../shared/language/tokenizer/load-tokenizer.js';
import { answerQuestions } from '../threads/answer-questions.js';
import { promptTokenIds, type PromptRequest } from './prompt-encoder.js';

/** Start data of the thread. */
export interface PromptThreadData {
  /** Directory of the pack. */
  directory: string;
}

export interface ThreadPrompt {
  asked: PromptRequest;
  /** The time that a chat template gets. */
  wallMs: number;
}

const { directory } = workerData as PromptThreadData;
// Every question gets the error of a failed open.
const opened = openTokenizer(directory);
opened.catch(() => undefined);

answerQuestions(async ({ asked, wallMs }: ThreadPrompt) =>
  Uint32Array.from(promptTokenIds(asked, await opened, wallMs)),
);
