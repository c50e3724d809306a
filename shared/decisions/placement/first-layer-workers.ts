import type { Placement } from '../../wire/messages.js';

/** Of the experts that workers would load for the next token's first layer, one in so many must be expected to be of use. */
const WORTH_ONE_IN = 8;

/** Whether a guess at the first layer's experts is right often enough to be worth its load. With 128 experts and 8 a token it is not. */
export function isFirstLayerWorthAGuess({
  experts,
  expertsPerToken,
}: Pick<Placement, 'experts' | 'expertsPerToken'>): boolean {
  return experts <= WORTH_ONE_IN * expertsPerToken;
}

/**
 * expert of layer 0 -> worker that loads it before anybody knows whether the next token activates it, while workers would else have
 * nothing to load: one expert a worker, in the order of both. With fewer workers than experts the experts behind the last worker are
 * in nobody's hands.
 */
export function firstLayerWorkers(placement: Placement): ReadonlyMap<number, string> {
  return new Map(placement.workers.slice(0, placement.experts).map(({ id }, expert) => [expert, id]));
}
