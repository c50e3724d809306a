import type { Execute, ExpertResult, Placement, Announce, Release } from '../../shared/wire/messages.js';
import type { CachedLayers } from './cached-layers.js';

/** Experts of a layer to run on rows of a pass: the content of an Execute. */
export type ExecuteWork = Pick<Execute, 'pass' | 'rows' | 'layer' | 'hidden' | 'experts'>;

/** The orders that main can give to one worker. */
export interface WorkerOrders {
  /** The experts that it has reported as cached. */
  readonly cached?: CachedLayers;
  /**
   * `onPartialResult`: takes results as they come, once for each expert; some may be failures. Resolves when all have come. Rejects with the code that the
   * worker replied with for the whole message, or with WORKER_LOST: experts without a result until then are not done. Rejects with CANCELLED as soon
   * as the signal aborts; the end of the sequence then frees what the worker holds for it.
   */
  execute(
    work: ExecuteWork,
    epoch: number,
    onPartialResult: (results: readonly ExpertResult[]) => void,
    signal: AbortSignal,
  ): Promise<void>;
  sendAnnounce(announce: Announce): void;
  sendRelease(release: Release): void;
  /** The sequence has ended. */
  sendEnd(sequence: number): void;
}

/** The roster as passes see it: the current placement and its workers. */
export interface PlacedWorkers {
  /** Null: there is no worker. */
  readonly placement: Placement | null;
  /** Null: it is not in the placement. */
  worker(id: string): WorkerOrders | null;
  /** The sequence has ended. This is sent to the workers of the placement, and to connected ones that have left it. */
  endSequence(sequence: number): void;
  /** The worker has given values that are wrong, for the reason `why`: it is not asked any more, and rows that it took part in are computed again. */
  distrust(worker: WorkerOrders, why: string): void;
  /** Number of experts that each worker has not answered. */
  outstanding(): ReadonlyMap<string, number>;
  /** The placement; waits graceMs for a first worker, then rejects with NO_WORKERS. Rejects with CANCELLED when the signal aborts. */
  waitForPlacement(graceMs: number, signal: AbortSignal): Promise<Placement>;
  /** Resolves when a placement is published, after graceMs, or when the signal aborts. */
  waitForChange(graceMs: number, signal: AbortSignal): Promise<void>;
}
