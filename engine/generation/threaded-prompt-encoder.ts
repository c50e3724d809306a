import { Worker } from 'node:worker_threads';
import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import type { Runtime, Timer } from '../../shared/runtime/runtime.js';
import type { PromptEncoder, PromptRequest } from './prompt-encoder.js';
import type { PromptAnswer, PromptQuestion, PromptThreadData } from './prompt-thread.js';

/**
 * How long one prompt may take. The longest that pass the check of their bytes take some tens of seconds; what takes so much longer does
 * not end, and would hold up all prompts behind it.
 */
export const PROMPT_LIMIT_MS = 300_000;
/** How long a prompt that nobody wants any more may hold up others. A thread that is given up for it must read the tokenizer anew. */
export const UNWANTED_PROMPT_LIMIT_MS = 2000;
/** Heap of the thread: its tokenizer, and the longest prompt. */
const HEAP_LIMIT_MIB = 4096;

/** What is used of a thread. */
export interface PromptThread {
  postMessage(question: PromptQuestion): void;
  on(event: 'message', listener: (answer: PromptAnswer) => void): unknown;
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'exit', listener: () => void): unknown;
  terminate(): Promise<unknown>;
}

export interface ThreadedPromptEncoderOptions {
  /** Starts a thread that has the tokenizer (`startPromptThread`). */
  startThread: () => PromptThread;
  /** Prompts that may wait while another one is encoded. */
  queueLimit: number;
  runtime: Pick<Runtime, 'after' | 'wallMs'>;
}

interface Job {
  id: number;
  request: PromptRequest;
  resolve(tokenIds: number[]): void;
  reject(error: OdmoeError): void;
}

/** A thread with the tokenizer of that pack. */
export function startPromptThread(directory: string): PromptThread {
  const data: PromptThreadData = { directory };
  return new Worker(new URL('./prompt-thread.js', import.meta.url), {
    workerData: data,
    execArgv: [],
    resourceLimits: { maxOldGenerationSizeMb: HEAP_LIMIT_MIB },
  });
}

/**
 * Encodes prompts in a thread of their own, one after another, so that a long one holds up no answer. A thread that dies is replaced when
 * the next prompt comes. Beside what PromptEncoder names, rejects with QUEUE_FULL, TIMEOUT, and INTERNAL when the thread dies.
 */
export class ThreadedPromptEncoder implements PromptEncoder {
  private readonly waiting: Job[] = [];
  private current: { job: Job; timer: Timer } | null = null;
  private thread: PromptThread | null;
  private nextId = 1;
  private closed = false;

  constructor(private readonly options: ThreadedPromptEncoderOptions) {
    // The tokenizer is read while the model is.
    this.thread = this.start();
  }

  async encode(request: PromptRequest, signal: AbortSignal): Promise<number[]> {
    if (request.promptTokenIds.length > 0) return [...request.promptTokenIds];
    if (signal.aborted) throw cancelled();
    if (this.closed) throw stopped();
    const { queueLimit } = this.options;
    if (this.waiting.length >= queueLimit) {
      throw new OdmoeError('QUEUE_FULL', `${queueLimit} prompts wait to be made into tokens already: ask again later`);
    }
    return new Promise<number[]>((resolve, reject) => {
      const giveUp = (): void => {
        this.leave(job);
        job.reject(cancelled());
      };
      const { text, messages, promptTokenIds, raw, templateArguments = [] } = request;
      const { continueLast = false, withoutSpecial = false } = request;
      const job: Job = {
        id: this.nextId++,
        request: { text, messages, promptTokenIds, raw, templateArguments, continueLast, withoutSpecial },
        resolve: (tokenIds) => {
          signal.removeEventListener('abort', giveUp);
          resolve(tokenIds);
        },
        reject: (error) => {
          signal.removeEventListener('abort', giveUp);
          reject(error);
        },
      };
      signal.addEventListener('abort', giveUp, { once: true });
      this.waiting.push(job);
      this.pump();
    });
  }

  async close(): Promise<void> {
    this.closed = true;
    const { thread } = this;
    this.thread = null;
    this.failCurrent(stopped());
    for (const job of this.waiting.splice(0)) job.reject(stopped());
    await thread?.terminate();
  }

  /** One that the thread works on may end there, where it does so soon; its answer is dropped. */
  private leave(job: Job): void {
    if (this.current?.job === job) {
      this.current.timer.cancel();
      this.current.timer = this.options.runtime.after(UNWANTED_PROMPT_LIMIT_MS, () => this.giveUpThread());
    }
    const place = this.waiting.indexOf(job);
    if (place >= 0) this.waiting.splice(place, 1);
  }

  private pump(): void {
    if (this.closed || this.current !== null) return;
    const job = this.waiting.shift();
    if (job === undefined) return;
    const timer = this.options.runtime.after(PROMPT_LIMIT_MS, () => this.giveUpThread());
    this.current = { job, timer };
    this.thread ??= this.start();
    this.thread.postMessage({ id: job.id, request: job.request, wallMs: this.options.runtime.wallMs() });
  }

  private start(): PromptThread {
    const thread = this.options.startThread();
    thread.on('message', (answer) => this.answered(answer));
    let reason = 'it ended by itself';
    thread.on('error', (error) => (reason = error.message));
    thread.on('exit', () => this.ended(thread, reason));
    return thread;
  }

  private answered(answer: PromptAnswer): void {
    if (this.current?.job.id !== answer.id) return;
    const { job, timer } = this.current;
    timer.cancel();
    this.current = null;
    if (answer.kind === 'tokens') job.resolve([...answer.tokenIds]);
    else job.reject(new OdmoeError(answer.code, answer.message, answer.field === null ? {} : { field: answer.field }));
    this.pump();
  }

  private ended(thread: PromptThread, reason: string): void {
    if (this.thread !== thread) return;
    this.thread = null;
    this.failCurrent(
      new OdmoeError('INTERNAL', `the thread that makes tokens of prompts has ended (${reason}); ask again`),
    );
    this.pump();
  }

  private giveUpThread(): void {
    const { thread } = this;
    this.thread = null;
    this.failCurrent(
      new OdmoeError('TIMEOUT', `the prompt had not become tokens after ${PROMPT_LIMIT_MS / 1000} s; shorten it`),
    );
    // Its end is nobody's concern any more; the next prompt starts another.
    thread?.terminate().catch(() => undefined);
    this.pump();
  }

  private failCurrent(error: OdmoeError): void {
    if (this.current === null) return;
    const { job, timer } = this.current;
    timer.cancel();
    this.current = null;
    job.reject(error);
  }
}

function cancelled(): OdmoeError {
  return new OdmoeError('CANCELLED', 'the request was cancelled before its prompt had become tokens');
}

function stopped(): OdmoeError {
  return new OdmoeError('NO_MAIN', 'main is being stopped; ask again when it is back');
}
