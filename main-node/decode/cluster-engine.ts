import type { Model } from '../../native/index.js';
import type { Logger } from '../../shared/log/logger.js';
import type { ModelShape } from '../../shared/model/tensor-source.js';
import type { ExpertDispatcher } from '../cluster/expert-dispatcher.js';
import type { Roster } from '../cluster/roster.js';
import type { PassPool } from './pass-pool.js';
import type { PredictionRouter } from './prediction-router.js';

/** What all sequences of a main share. */
export interface ClusterEngine {
  readonly model: Model;
  readonly shape: ModelShape;
  readonly roster: Roster;
  readonly dispatcher: ExpertDispatcher;
  readonly router: PredictionRouter;
  /** Passes of one row, and of prefillRows. */
  readonly decodePasses: PassPool;
  readonly prefillPasses: PassPool;
  readonly prefillRows: number;
  readonly miniBatchRows: number;
  readonly prefillOverlap: boolean;
  readonly align: { tokenPeriod: number; keyValuePeriod: number };
  readonly log: Logger;
}

/** What one request cost, for its Finished message. */
export class RequestCounters {
  /** Experts that a worker had to load after the gate's word, in decode, or that had to be sent again. */
  reloads = 0;
  /** Per layer the longest stall of the experts that ran side by side, summed. */
  ioStallUs = 0;
}

/** Waits for all, then throws the first failure: nothing is left running behind a caller that has given up. */
export async function settleAll(promises: readonly Promise<void>[]): Promise<void> {
  const outcomes = await Promise.allSettled(promises);
  for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
}
