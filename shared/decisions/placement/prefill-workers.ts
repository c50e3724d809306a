import { distinctExperts } from './draft-rows.js';
import { strictHomesOf, isStrict } from './strict-homes.js';
import { OdmoeError } from '../../base/errors/odmoe-error.js';
import { requirePresent } from '../../base/errors/assert-invariant.js';
import type { Placement } from '../../wire/messages.js';

/**
 * The workers that run an expert of a layer in prefill: its strict homes if there are any. Else all workers share a layer's experts evenly,
 * rotated by layer. Nothing else decides, so the next layer can be loaded before its router has chosen. With more workers than experts an expert
 * has several workers, and its mini-batches alternate among them.
 */
export function workersForPrefillExpert(placement: Placement, layer: number, expert: number): readonly string[] {
  const workers = placement.workers;
  if (workers.length === 0) {
    throw new OdmoeError(
      'NO_WORKERS',
      `Placement epoch ${placement.epoch} has no worker for a prefill of layer ${layer}.`,
    );
  }
  if (isStrict(placement)) return strictHomesOf(placement, layer, expert);
  const holders: string[] = [];
  for (let place = expert; place === expert || place < workers.length; place += placement.experts) {
    const holder = requirePresent(
      workers[(place + layer) % workers.length],
      'a worker is at each place below their number.',
    );
    holders.push(holder.id);
  }
  return holders;
}

/** Least share of a layer's experts that a pass must be expected to use, for all of them to be announced before the router has chosen. */
export const NEARLY_ALL_EXPERTS = 0.89;

/**
 * True if a pass of `rows` rows is expected to use nearly all experts of a layer. Then hardly any load is wasted if all are loaded before the
 * router has chosen. With 8 experts and 2 a row this needs 8 rows, with 128 experts and 8 a row 35.
 */
export function usesNearlyAllExperts(
  { experts, expertsPerToken }: Pick<Placement, 'experts' | 'expertsPerToken'>,
  rows: number,
): boolean {
  return distinctExperts(experts, expertsPerToken, rows) >= NEARLY_ALL_EXPERTS * experts;
}

/** The worker that holds each expert of an announced layer, experts rising. Each expert gets at most `copies` of its workers. */
export function prefillAssignment(
  placement: Placement,
  layer: number,
  copies = Infinity,
): (readonly [expert: number, workerId: string])[] {
  const experts = Array.from({ length: placement.experts }, (_, expert) => expert);
  return experts.flatMap((expert) =>
    workersForPrefillExpert(placement, layer, expert)
      .slice(0, copies)
      .map((workerId) => [expert, workerId] as const),
  );
}
