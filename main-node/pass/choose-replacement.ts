import type { Placement } from '../../shared/wire/messages.js';
import { groupForLayer } from '../../shared/decisions/placement/plan-placement.js';
import { homesOf, isStrict } from '../../shared/decisions/placement/strict-homes.js';

/**
 * The worker that takes over an expert of a layer from one that was lost: one of the expert's own or of the same group if any is left, else of
 * all; the one with the least outstanding requests (by worker id; absent means none), ties to the lower id. Null when all are lost.
 */
export function chooseReplacement(
  placement: Placement,
  { layer, expert }: { layer: number; expert: number },
  lost: ReadonlySet<string>,
  outstanding: ReadonlyMap<string, number>,
): string | null {
  const isLeft = (id: string): boolean => !lost.has(id);
  const own = isStrict(placement) ? homesOf(placement, layer, expert) : groupForLayer(placement, layer);
  const near = own.filter(isLeft);
  const candidates = near.length > 0 ? near : placement.workers.map((worker) => worker.id).filter(isLeft);
  return candidates.reduce<string | null>(
    (best, id) => (best === null || (outstanding.get(id) ?? 0) < (outstanding.get(best) ?? 0) ? id : best),
    null,
  );
}
