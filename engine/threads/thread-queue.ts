import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { waitForPeer, type WaitRuntime } from '../../shared/base/runtime/peer-wait.js';
import type { Timer } from '../../shared/base/runtime/runtime.js';
import { living, onAbort } from '../../shared/base/runtime/living.js';

/** Longest time that unwanted work may delay other work. After it the thread is terminated, and a new one must be started. */
export const UNWANTED_WORK_LIMIT_MS = 2000;

export interface ThreadQuestion<Request> {
  id: number;
  request: Request;
}

export type ThreadAnswer<Result> =
  | { id: number; kind: 'done'; result: Result }
  | { id: number; kind: 'error'; code: ErrorCode; message: string; field: string | null };

/** The parts of a thread that the queue uses. */
export interface QueueThread<Request, Result> {
  postMessage(question: ThreadQuestion<Request>): void;
  on(event: 'message', listener: (answer: ThreadAnswer<Result>) => void): unknown;
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'exit', listener: () => void): unknown;
  terminate(): Promise<unknown>;
}

/** Texts for the messages of a lane. */
export interface ThreadQueueWords {
  /** "prompts wait to be made into tokens already" */
  waiting: string;
  /** "its prompt had become tokens" */
  done: string;
  /** "the thread that makes tokens of prompts" */
  thread: string;
  /** The error of work that does not end in time. */
  late: () => OdmoeError;
}

export interface ThreadQueueOptions<Request, Result> {
  startThread: () => QueueThread<Request, Result>;
  /** Requests that may wait while the thread works on another one. */
  queueLimit: number;
  /** Longest time for one request. Work that takes longer does not end, and would block all requests behind it. */
  limitMs: number;
  runtime: WaitRuntime;
  /** The thread ends after this time without work; null: it never ends, and is started at once. */
  idleMs: number | null;
  words: ThreadQueueWords;
}

/** A request that waits. */
export interface WaitingWork {
  /** Length in characters. */
  length: number;
  sinceMs: number;
}

interface Job<Request, Result> extends WaitingWork {
  id: number;
  request: Request;
  resolve(result: Result): void;
  reject(error: OdmoeError): void;
}

/**
 * Each waited millisecond shortens the length of a request by this many characters. Time grows with length, so no text waits for many times
 * its processing time.
 */
const CHARACTERS_A_WAITED_MS = 50;

/** The index of the next request: the shortest, after waiting time has shortened it. Among equal ones the older one. */
export function nextWork(waiting: readonly WaitingWork[], nowMs: number): number {
  const costs = waiting.map(({ length, sinceMs }) => length - (nowMs - sinceMs) * CHARACTERS_A_WAITED_MS);
  return costs.indexOf(Math.min(...costs));
}

/** Runs requests in one thread, one after another. A dead thread is replaced when the next request comes. */
export class ThreadQueue<Request, Result> {
  private readonly waiting: Job<Request, Result>[] = [];
  private current: { job: Job<Request, Result>; timer: Timer } | null = null;
  private thread: QueueThread<Request, Result> | null = null;
  /** Threads that were terminated and still run. */
  private readonly ending = new Set<Promise<unknown>>();
  private idleTimer: Timer | null = null;
  private nextId = 1;
  private closed = false;

  constructor(private readonly options: ThreadQueueOptions<Request, Result>) {
    if (options.idleMs === null) this.thread = this.start();
  }

  /** Rejects with CANCELLED, QUEUE_FULL, NO_MAIN, the thread's error, the error of late work, and INTERNAL when the thread dies. */
  async run(request: Request, length: number, signal: AbortSignal): Promise<Result> {
    const { queueLimit, words } = this.options;
    if (signal.aborted) throw cancelled(words);
    if (this.closed) throw stopped();
    if (this.waiting.length >= queueLimit) {
      throw new OdmoeError('QUEUE_FULL', `${queueLimit} ${words.waiting}: ask again later`);
    }
    return new Promise<Result>((resolve, reject) => {
      const giveUp = (): void => {
        this.leave(job);
        job.reject(cancelled(words));
      };
      const job: Job<Request, Result> = {
        id: this.nextId++,
        request,
        length,
        sinceMs: this.options.runtime.nowMs(),
        resolve: (result) => {
          leave();
          resolve(result);
        },
        reject: (error) => {
          leave();
          reject(error);
        },
      };
      const leave = onAbort(signal, giveUp);
      this.waiting.push(job);
      this.pump();
    });
  }

  /** Resolves when no thread of the lane runs any more. Idempotent. */
  async close(): Promise<void> {
    this.closed = true;
    this.dropThread();
    this.idleTimer?.cancel();
    this.failCurrent(stopped());
    for (const job of this.waiting.splice(0)) job.reject(stopped());
    await Promise.all(this.ending);
  }

  /** Drops an unwanted request. If the thread works on it, it may finish if it does so soon; its answer is dropped. */
  private leave(job: Job<Request, Result>): void {
    if (this.current?.job === job) {
      this.current.timer.cancel();
      this.current.timer = waitForPeer(this.options.runtime, UNWANTED_WORK_LIMIT_MS, () => this.giveUpThread());
    }
    const place = this.waiting.indexOf(job);
    if (place >= 0) this.waiting.splice(place, 1);
  }

  private pump(): void {
    if (this.closed || this.current !== null) return;
    const { runtime } = this.options;
    const [job] = this.waiting.splice(Math.max(0, nextWork(this.waiting, runtime.nowMs())), 1);
    if (job === undefined) {
      this.rest();
      return;
    }
    this.idleTimer?.cancel();
    this.idleTimer = null;
    const timer = waitForPeer(runtime, this.options.limitMs, () => this.giveUpThread());
    this.current = { job, timer };
    this.thread ??= this.start();
    this.thread.postMessage({ id: job.id, request: job.request });
  }

  /** Ends a thread after some time without work, and frees its memory. */
  private rest(): void {
    const { idleMs, runtime } = this.options;
    if (idleMs === null || this.thread === null) return;
    this.idleTimer?.cancel();
    this.idleTimer = runtime.after(idleMs, () => {
      this.idleTimer = null;
      this.dropThread();
    });
  }

  private start(): QueueThread<Request, Result> {
    const { startThread, words } = this.options;
    const thread = startThread();
    thread.on('message', (answer) => this.answered(answer));
    let reason = 'it ended by itself';
    thread.on('error', (error) => (reason = error.message));
    const end = living().begin('thread', words.thread);
    thread.on('exit', () => {
      end();
      this.ended(thread, reason);
    });
    return thread;
  }

  private answered(answer: ThreadAnswer<Result>): void {
    if (this.current?.job.id !== answer.id) return;
    const { job, timer } = this.current;
    timer.cancel();
    this.current = null;
    if (answer.kind === 'done') job.resolve(answer.result);
    else job.reject(new OdmoeError(answer.code, answer.message, answer.field === null ? {} : { field: answer.field }));
    this.pump();
  }

  private ended(thread: QueueThread<Request, Result>, reason: string): void {
    if (this.thread !== thread) return;
    this.thread = null;
    const { words } = this.options;
    this.failCurrent(new OdmoeError('INTERNAL', `${words.thread} has ended (${reason}); ask again`));
    this.pump();
  }

  private giveUpThread(): void {
    this.dropThread();
    this.failCurrent(this.options.words.late());
    this.pump();
  }

  private dropThread(): void {
    const { thread } = this;
    this.thread = null;
    if (thread === null) return;
    // Only close() waits for the thread's end and gets its error; the next request starts another thread.
    const ended = thread.terminate().finally(() => this.ending.delete(ended));
    this.ending.add(ended);
    // If nobody waits, a thread that did not end stays in the registry of living things, which names it.
    ended.catch(() => undefined);
  }

  private failCurrent(error: OdmoeError): void {
    if (this.current === null) return;
    const { job, timer } = this.current;
    timer.cancel();
    this.current = null;
    job.reject(error);
  }
}

function cancelled({ done }: ThreadQueueWords): OdmoeError {
  return new OdmoeError('CANCELLED', `the request was cancelled before ${done}`);
}

function stopped(): OdmoeError {
  return new OdmoeError('NO_MAIN', 'main is being stopped; ask again when it is back');
}
