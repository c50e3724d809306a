import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import { waitForPeer, type WaitRuntime } from '../../shared/runtime/peer-wait.js';
import type { Timer } from '../../shared/runtime/runtime.js';
import type { PromptRequest } from './prompt-encoder.js';
import type { PromptAnswer, PromptQuestion } from './prompt-thread.js';

/**
 * How long one prompt may take. The longest that pass the check of their bytes take some tens of seconds; what takes so much longer does
 * not end, and would hold up all prompts behind it.
 */
export const PROMPT_LIMIT_MS = 300_000;
/** How long a prompt that nobody wants any more may hold up others. A thread that is given up for it must read the tokenizer anew. */
export const UNWANTED_PROMPT_LIMIT_MS = 2000;

/** What is used of a thread. */
export interface PromptThread {
  postMessage(question: PromptQuestion): void;
  on(event: 'message', listener: (answer: PromptAnswer) => void): unknown;
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'exit', listener: () => void): unknown;
  terminate(): Promise<unknown>;
}

export interface PromptLaneOptions {
  /** Starts a thread that has the tokenizer. */
  startThread: () => PromptThread;
  /** Prompts that may wait while another one is encoded. */
  queueLimit: number;
  runtime: WaitRuntime;
  /** How long the thread is kept when there is nothing to do; null: for good, and it is started at once. */
  idleMs: number | null;
}

/** A prompt that waits. */
export interface WaitingPrompt {
  /** Characters of it. */
  length: number;
  sinceMs: number;
}

interface Job extends WaitingPrompt {
  id: number;
  request: PromptRequest;
  resolve(tokenIds: number[]): void;
  reject(error: OdmoeError): void;
}

/** Waiting for so long is worth a character less. Long texts take about as long for each, so none waits for many times its own time. */
const CHARACTERS_A_WAITED_MS = 50;

/** The place of the one that is to be encoded next: the shortest, but that waiting makes it shorter. Of two that are alike the older one. */
export function nextPrompt(waiting: readonly WaitingPrompt[], nowMs: number): number {
  const costs = waiting.map(({ length, sinceMs }) => length - (nowMs - sinceMs) * CHARACTERS_A_WAITED_MS);
  return costs.indexOf(Math.min(...costs));
}

/** Encodes prompts in one thread, one after another. A thread that dies is replaced when the next prompt comes. */
export class PromptLane {
  private readonly waiting: Job[] = [];
  private current: { job: Job; timer: Timer } | null = null;
  private thread: PromptThread | null = null;
  private idleTimer: Timer | null = null;
  private nextId = 1;
  private closed = false;

  constructor(private readonly options: PromptLaneOptions) {
    // The tokenizer is read while the model is.
    if (options.idleMs === null) this.thread = this.start();
  }

  /** Rejects with CANCELLED, QUEUE_FULL, TIMEOUT, what the tokenizer throws, and INTERNAL when the thread dies. */
  encode(request: PromptRequest, length: number, signal: AbortSignal): Promise<number[]> {
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
      const job: Job = {
        id: this.nextId++,
        request,
        length,
        sinceMs: this.options.runtime.nowMs(),
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
    this.idleTimer?.cancel();
    this.failCurrent(stopped());
    for (const job of this.waiting.splice(0)) job.reject(stopped());
    await thread?.terminate();
  }

  /** One that the thread works on may end there, where it does so soon; its answer is dropped. */
  private leave(job: Job): void {
    if (this.current?.job === job) {
      this.current.timer.cancel();
      this.current.timer = waitForPeer(this.options.runtime, UNWANTED_PROMPT_LIMIT_MS, () => this.giveUpThread());
    }
    const place = this.waiting.indexOf(job);
    if (place >= 0) this.waiting.splice(place, 1);
  }

  private pump(): void {
    if (this.closed || this.current !== null) return;
    const { runtime } = this.options;
    const [job] = this.waiting.splice(Math.max(0, nextPrompt(this.waiting, runtime.nowMs())), 1);
    if (job === undefined) {
      this.rest();
      return;
    }
    this.idleTimer?.cancel();
    this.idleTimer = null;
    const timer = waitForPeer(runtime, PROMPT_LIMIT_MS, () => this.giveUpThread());
    this.current = { job, timer };
    this.thread ??= this.start();
    this.thread.postMessage({ id: job.id, request: job.request, wallMs: runtime.wallMs() });
  }

  /** A thread without work goes after a while, and its tokenizer with it. */
  private rest(): void {
    const { idleMs, runtime } = this.options;
    if (idleMs === null || this.thread === null) return;
    this.idleTimer?.cancel();
    this.idleTimer = runtime.after(idleMs, () => {
      this.idleTimer = null;
      this.dropThread();
    });
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
    this.dropThread();
    this.failCurrent(
      new OdmoeError('TIMEOUT', `the prompt had not become tokens after ${PROMPT_LIMIT_MS / 1000} s; shorten it`),
    );
    this.pump();
  }

  private dropThread(): void {
    const { thread } = this;
    this.thread = null;
    // Its end is nobody's concern any more; the next prompt starts another.
    thread?.terminate().catch(() => undefined);
  }

  private failCurrent(error: OdmoeError): void {
    if (this.current === null) return;
    const { job, timer } = this.current;
    timer.cancel();
    this.current = null;
    job.reject(error);
  }
}

export function cancelled(): OdmoeError {
  return new OdmoeError('CANCELLED', 'the request was cancelled before its prompt had become tokens');
}

function stopped(): OdmoeError {
  return new OdmoeError('NO_MAIN', 'main is being stopped; ask again when it is back');
}
