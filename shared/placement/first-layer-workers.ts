import type { Placement } from '../rpc/messages.js';

/**
 * expert of layer 0 -> worker that loads it before anybody knows whether the next token activates it, while workers would else have
 * nothing to load: one expert a worker, in the order of both. With fewer workers than experts the experts behind the last worker are
 * in nobody's hands.
 */
export function firstLayerWorkers(placement: Placement): ReadonlyMap<number, string> {
  return new Map(placement.workers.slice(0, placement.experts).map(({ id }, expert) => [expert, id]));
}
