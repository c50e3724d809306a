import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { waitForPeer, type WaitRuntime } from '../../shared/base/runtime/peer-wait.js';
import type { Timer } from '../../shared/base/runtime/runtime.js';
import { living, onAbort } from '../../shared/base/runtime/living.js';

/** How long work that nobody wants any more may hold up other work. A thread that is given up for it must be started anew. */
export const UNWANTED_WORK_LIMIT_MS = 2000;

export interface ThreadQuestion<Request> {
  id: number;
  request: Request;
}

export type ThreadAnswer<Result> =
  | { id: number; kind: 'done'; result: Result }
  | { id: number; kind: 'error'; code: ErrorCode; message: string; field: string | null };

/** What is used of a thread. */
export interface QueueThread<Request, Result> {
  postMessage(question: ThreadQuestion<Request>): void;
  on(event: 'message', listener: (answer: ThreadAnswer<Result>) => void): unknown;
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'exit', listener: () => void): unknown;
  terminate(): Promise<unknown>;
}

/** What a lane says of its work. */
export interface ThreadQueueWords {
  /** "prompts wait to be made into tokens already" */
  waiting: string;
  /** "its prompt had become tokens" */
  done: string;
  /** "the thread that makes tokens of prompts" */
  thread: string;
  /** Of work that does not end. */
  late: () => OdmoeError;
}

export interface ThreadQueueOptions<Request, Result> {
  startThread: () => QueueThread<Request, Result>;
  /** Requests that may wait while another one is worked on. */
  queueLimit: number;
  /** How long one may take. What takes longer does not end, and would hold up all behind it. */
  limitMs: number;
  runtime: WaitRuntime;
  /** How long the thread is kept when there is nothing to do; null: for good, and it is started at once. */
  idleMs: number | null;
  words: ThreadQueueWords;
}

/** Work that waits. */
export interface WaitingWork {
  /** Characters of it. */
  length: number;
  sinceMs: number;
}

interface Job<Request, Result> extends WaitingWork {
  id: number;
  request: Request;
  resolve(result: Result): void;
  reject(error: OdmoeError): void;
}

/** Waiting for so long is worth a character less. Long texts take about as long for each, so none waits for many times its own time. */
const CHARACTERS_A_WAITED_MS = 50;

/** The place of the one that is to be encoded next: the shortest, but that waiting makes it shorter. Of two that are alike the older one. */
export function nextWork(waiting: readonly WaitingWork[], nowMs: number): number {
  const costs = waiting.map(({ length, sinceMs }) => length - (nowMs - sinceMs) * CHARACTERS_A_WAITED_MS);
  return costs.indexOf(Math.min(...costs));
}

/** Has work done in one thread, one request after another. A thread that dies is replaced when the next request comes. */
export class ThreadQueue<Request, Result> {
  private readonly waiting: Job<Request, Result>[] = [];
  private current: { job: Job<Request, Result>; timer: Timer } | null = null;
  private thread: QueueThread<Request, Result> | null = null;
  /** Threads that have been told to end, and run still. */
  private readonly ending = new Set<Promise<unknown>>();
  private idleTimer: Timer | null = null;
  private nextId = 1;
  private closed = false;

  constructor(private readonly options: ThreadQueueOptions<Request, Result>) {
    if (options.idleMs === null) this.thread = this.start();
  }

  /** Rejects with CANCELLED, QUEUE_FULL, NO_MAIN, what the thread answers, what is late, and INTERNAL when the thread dies. */
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

  /** One that the thread works on may end there, where it does so soon; its answer is dropped. */
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

  /** A thread without work goes after a while, and what it holds with it. */
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
    // Only whoever closes the lane waits for its end, and hears if it fails; the next request starts another.
    const ended = thread.terminate().finally(() => this.ending.delete(ended));
    this.ending.add(ended);
    // Where nobody waits: a thread that did not end stays in the registry of living things, which names it.
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
