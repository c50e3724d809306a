import type { Placement } from '../rpc/messages.js';
import { groupForLayer } from './plan-placement.js';

/**
 * The worker that takes over an expert of a layer from one that was lost: of the same group if any is left, else of all; the
 * one with the least outstanding requests (by worker id; absent means none), ties to the lower id. Null when all are lost.
 */
export function chooseReplacement(
  placement: Placement,
  layer: number,
  lost: ReadonlySet<string>,
  outstanding: ReadonlyMap<string, number>,
): string | null {
  const isLeft = (id: string): boolean => !lost.has(id);
  const ofGroup = groupForLayer(placement, layer).filter(isLeft);
  const candidates = ofGroup.length > 0 ? ofGroup : placement.workers.map((worker) => worker.id).filter(isLeft);
  return candidates.reduce<string | null>(
    (best, id) => (best === null || (outstanding.get(id) ?? 0) < (outstanding.get(best) ?? 0) ? id : best),
    null,
  );
}
