import { groupForLayer } from '../../shared/decisions/placement/plan-placement.js';
import { isStrict, strictHomesOf } from '../../shared/decisions/placement/strict-homes.js';
import type { ExpertId } from '../../shared/model/expert-id.js';
import type { Placement } from '../../shared/wire/messages.js';

/**
 * The workers, other than `first`, that the placement gives the expert to: its strict homes, all workers where experts are dealt to all, or the
 * group of its layer. Others are never asked to check it: they would fetch or load what the placement does not give them.
 */
export function secondWorkers(placement: Placement, { layer, expert }: ExpertId, first: string): string[] {
  return homesOf(placement, layer, expert).filter((id) => id !== first);
}

function homesOf(placement: Placement, layer: number, expert: number): readonly string[] {
  if (isStrict(placement)) return strictHomesOf(placement, layer, expert);
  return placement.spread ? placement.workers.map(({ id }) => id) : groupForLayer(placement, layer);
}

/** The reason, in words, for which no executions, or not all of them, can be compared under this placement; empty: each has a second worker. */
export function obstacleOf(placement: Placement | null): string {
  if (placement === null) return 'no worker is connected';
  const { workers, groups, homes, spread } = placement;
  if (workers.length < 2) return 'only one worker is connected: start another one';
  if (isStrict(placement))
    return homes > 1 ? '' : 'each expert has one home (placement.homes: strict): set placement.replicas to 2';
  if (spread) return '';
  const ofOne = groups.filter(({ workerIds }) => workerIds.length === 1).length;
  if (ofOne === 0) return '';
  const which = ofOne === groups.length ? 'each group has' : `${ofOne} of ${groups.length} groups have`;
  return `${which} one worker, and its experts no second one: raise placement.group_size, or set placement.spread to all`;
}
