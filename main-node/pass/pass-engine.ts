import type { ModelShape } from '../../shared/model/model-shape.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';
import type { ExpertDispatcher } from './expert-dispatcher.js';

/** What the passes of prefill and decode need of main. */
export interface PassEngine {
  readonly shape: ModelShape;
  readonly roster: PlacedWorkers;
  readonly dispatcher: ExpertDispatcher;
}

/** What one request cost, for its Finished message. */
export class RequestCounters {
  /** Experts that a worker had to load after the router's choice, in decode, or that had to be sent again. */
  reloads = 0;
  /** Per layer the longest stall of the experts that ran side by side, summed. */
  ioStallUs = 0;
}

/** Waits for all, then throws the first failure: nothing is left running behind a caller that has given up. */
export async function settleAll(promises: readonly Promise<void>[]): Promise<void> {
  const outcomes = await Promise.allSettled(promises);
  for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
}
