import { distinctExperts } from './draft-rows.js';
import { homesOf, isStrict } from './strict-homes.js';
import { OdmoeError } from '../../base/errors/odmoe-error.js';
import { requirePresent } from '../../base/errors/assert-invariant.js';
import type { Placement } from '../../wire/messages.js';

/**
 * The workers that run an expert of a layer in prefill: its own where it has some. Else all workers share a layer's experts evenly, rotated by layer, and
 * nothing else decides: the next layer can be loaded before its router has chosen. With more workers than experts an expert has
 * several, and its mini-batches alternate among them.
 */
export function workersForPrefillExpert(placement: Placement, layer: number, expert: number): readonly string[] {
  const workers = placement.workers;
  if (workers.length === 0) {
    throw new OdmoeError(
      'NO_WORKERS',
      `Placement epoch ${placement.epoch} has no worker for a prefill of layer ${layer}.`,
    );
  }
  if (isStrict(placement)) return homesOf(placement, layer, expert);
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

/** Part of a layer's experts that a pass is expected to use where all of them are announced before its router has chosen. */
export const NEARLY_ALL_EXPERTS = 0.89;

/**
 * Whether a pass of so many rows is expected to use nearly all experts of a layer, so that hardly a load is in vain when all are loaded
 * before the router has chosen. With 8 experts and 2 a row 8 rows are, with 128 experts and 8 a row 35.
 */
export function usesNearlyAllExperts(
  { experts, expertsPerToken }: Pick<Placement, 'experts' | 'expertsPerToken'>,
  rows: number,
): boolean {
  return distinctExperts(experts, expertsPerToken, rows) >= NEARLY_ALL_EXPERTS * experts;
}

/** Which worker is to hold which expert of a layer that is announced, experts rising; of the workers that an expert has `copies` at most. */
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
