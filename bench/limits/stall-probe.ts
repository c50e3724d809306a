import { once } from 'node:events';
import { Worker } from 'node:worker_threads';

/** How a daemon is asked, GET /health or Node.Identify; `pid`: its process; `mainUrl`: where one token is asked for. */
export type ProbeTarget = { pid: number; mainUrl: string } & (
  { kind: 'http'; url: string } | { kind: 'rpc'; address: string }
);

/** The longest of their kind in some time. */
export interface Waits {
  /** For the daemon's answer. */
  stallMs: number;
  /** Processor time of the daemon's event loop from a question to its answer. On a busy machine this is the daemon's own part of a stall. */
  busyMs: number;
  /** For one token of main; null: one was not given. */
  besideMs: number | null;
}

/** Asks a daemon every few milliseconds, and main for tokens, in a thread of its own. */
export class StallProbe {
  private readonly thread: Worker;

  constructor(target: ProbeTarget) {
    this.thread = new Worker(new URL('./probe-thread.js', import.meta.url), { workerData: target });
  }

  /** The longest waits since they were taken last. */
  async take(): Promise<Waits> {
    this.thread.postMessage(null);
    const [waits] = (await once(this.thread, 'message')) as [Waits];
    return waits;
  }

  async stop(): Promise<void> {
    await this.thread.terminate();
  }
}
