import type { Placement } from '../../wire/messages.js';

/** An announcement ahead is worth its loads if at least one in this many loaded experts is expected to be used. */
const WORTH_ONE_IN = 8;

/** True if experts of the first layer that are announced ahead are chosen often enough to be worth their loads. With 128 experts and 8 a token it is not. */
export function isFirstLayerWorthAnnouncing({
  experts,
  expertsPerToken,
}: Pick<Placement, 'experts' | 'expertsPerToken'>): boolean {
  return experts <= WORTH_ONE_IN * expertsPerToken;
}

/**
 * expert of layer 0 -> worker that loads it before it is known whether the next token activates it. Workers load then because they would
 * otherwise be idle. Each worker gets one expert, in the order of both. With fewer workers than experts, the remaining experts have no worker.
 */
export function firstLayerWorkers(placement: Placement): ReadonlyMap<number, string> {
  return new Map(placement.workers.slice(0, placement.experts).map(({ id }, expert) => [expert, id]));
}
