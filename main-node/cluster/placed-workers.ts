import type { Execute, ExpertResult, Placement, Announce, Release } from '../../shared/wire/messages.js';
import type { CachedLayers } from './cached-layers.js';

/** Experts of a layer to run on rows of a pass: what an Execute asks for. */
export type ExecuteWork = Pick<Execute, 'pass' | 'rows' | 'layer' | 'hidden' | 'experts'>;

/** What main asks of one worker. */
export interface WorkerOrders {
  /** What it has told that it keeps of experts. */
  readonly kept?: CachedLayers;
  /**
   * `onPart`: takes results as they come, each expert's once; some may be failures. Resolves when all have come. Rejects with the
   * code that the worker answered for the whole, or WORKER_LOST: what has not been told of by then is not done. Rejects with CANCELLED as
   * soon as the signal aborts; the end of the sequence then frees what the worker holds for it.
   */
  execute(
    work: ExecuteWork,
    epoch: number,
    onPart: (results: readonly ExpertResult[]) => void,
    signal: AbortSignal,
  ): Promise<void>;
  sendAnnounce(announce: Announce): void;
  sendRelease(release: Release): void;
  /** The sequence has ended. */
  sendEnd(sequence: number): void;
}

/** What passes see of the roster: the placement that holds, and its workers. */
export interface PlacedWorkers {
  /** Null: there is no worker. */
  readonly placement: Placement | null;
  /** Null: it is not of the placement. */
  worker(id: string): WorkerOrders | null;
  /** The sequence has ended: told to the workers of the placement, and to those that have left it and are connected. */
  endSequence(sequence: number): void;
  /** The worker has given values that cannot be believed, and why: it is asked no more, and what it took part in is computed again. */
  distrust(worker: WorkerOrders, why: string): void;
  /** Experts that each worker has not answered. */
  outstanding(): ReadonlyMap<string, number>;
  /** The placement; waits graceMs for a first worker, then rejects with NO_WORKERS. Rejects with CANCELLED when the signal aborts. */
  waitForPlacement(graceMs: number, signal: AbortSignal): Promise<Placement>;
  /** Resolves when a placement is announced, after graceMs, or when the signal aborts. */
  waitForChange(graceMs: number, signal: AbortSignal): Promise<void>;
}
