import { once } from 'node:events';
import { Worker } from 'node:worker_threads';

/** The way to ask a daemon, GET /health or Node.Identify; `pid`: its process; `mainUrl`: the server that is asked for tokens. */
export type ProbeTarget = { pid: number; mainUrl: string } & (
  | { kind: 'http'; url: string }
  | { kind: 'rpc'; address: string }
);

/** The longest waits of each kind in a period. */
export interface Waits {
  /** Wait for the daemon's answer. */
  stallMs: number;
  /** Processor time of the daemon's event loop from a request to its answer: on a busy machine, the daemon's own part of a stall. */
  busyMs: number;
  /** Wait for one token of main; null: none came. */
  besideMs: number | null;
}

/** Sends requests to a daemon every few milliseconds, and asks main for tokens, in a separate thread. */
export class StallProbe {
  private readonly thread: Worker;

  constructor(target: ProbeTarget) {
    this.thread = new Worker(new URL('./probe-thread.js', import.meta.url), { workerData: target });
  }

  /** Returns the longest waits since the last call. */
  async take(): Promise<Waits> {
    this.thread.postMessage(null);
    const [waits] = (await once(this.thread, 'message')) as [Waits];
    return waits;
  }

  async stop(): Promise<void> {
    await this.thread.terminate();
  }
}
