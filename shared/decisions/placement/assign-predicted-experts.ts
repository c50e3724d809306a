import { OdmoeError } from '../../base/errors/odmoe-error.js';
import type { Placement } from '../../wire/messages.js';
import { groupForLayer } from './plan-placement.js';
import { homesOf, isStrict } from './strict-homes.js';

/**
 * Which worker of the layer's group loads which expert. Depends on the set of experts only, so that shadow (which predicts)
 * and main (which knows the router's choice) come to the same answer without asking each other. No worker gets more than
 * ceil(experts / group size).
 *
 * Every expert of a layer has a home in the group, the same at every token, so that what a worker keeps of an expert is found
 * again. Where more experts have one home than it may get, those with the higher ids go to the next workers with room, in the
 * order of the group. Homes are rotated from layer to layer: in a group with spares by as many places as a layer deals experts,
 * so that a layer starts to deal where the one before stopped. That keeps what matters to a cacheless cluster, where a worker
 * that rests has a head start on its next load: a spare is home to as many experts as any other and works as much, and the
 * workers rest in turn but for the chance in which experts the router picks. With no spare everybody has a turn at every layer,
 * and homes move by one place, which spreads experts that are popular at every layer.
 */
export function assignPredictedExperts(
  placement: Placement,
  layer: number,
  experts: readonly number[],
): Map<number, string> {
  const group = groupForLayer(placement, layer);
  if (group.length === 0 && experts.length > 0) {
    throw new OdmoeError('NO_WORKERS', `Placement epoch ${placement.epoch} has no worker for layer ${layer}.`);
  }
  const sorted = [...new Set(experts)].sort((left, right) => left - right);
  if (isStrict(placement)) return assignToHomes(placement, layer, sorted);
  const room = new Map(group.map((id) => [id, Math.ceil(sorted.length / group.length)]));
  const assignment = new Map<number, string>();
  const assign = (expert: number, candidates: readonly string[]): void => {
    const worker = candidates.find((id) => (room.get(id) ?? 0) > 0);
    if (worker === undefined) return;
    room.set(worker, (room.get(worker) ?? 0) - 1);
    assignment.set(expert, worker);
  };
  for (const expert of sorted) assign(expert, workersFromHome(placement, layer, expert).slice(0, 1));
  for (const expert of sorted) {
    if (!assignment.has(expert)) assign(expert, workersFromHome(placement, layer, expert));
  }
  return assignment;
}

/** Each goes to one of its own workers: the one that has fewest of the layer so far. */
function assignToHomes(placement: Placement, layer: number, sorted: readonly number[]): Map<number, string> {
  const assignment = new Map<number, string>();
  const load = new Map<string, number>();
  for (const expert of sorted) {
    const worker = leastLoaded(homesOf(placement, layer, expert), load);
    load.set(worker, (load.get(worker) ?? 0) + 1);
    assignment.set(expert, worker);
  }
  return assignment;
}

/** The first of those with the least; there is one. */
export function leastLoaded(candidates: readonly string[], load: ReadonlyMap<string, number>): string {
  return candidates.reduce((best, id) => ((load.get(id) ?? 0) < (load.get(best) ?? 0) ? id : best));
}

/** The workers that are asked to take an expert, its home first: those of the layer's group, or the expert's own. */
export function workersFromHome(placement: Placement, layer: number, expert: number): readonly string[] {
  if (isStrict(placement)) return homesOf(placement, layer, expert);
  const group = groupForLayer(placement, layer);
  const visit = Math.floor(layer / Math.max(1, placement.groups.length));
  const step = group.length > placement.expertsPerToken ? placement.expertsPerToken : 1;
  const home = (expert + visit * step) % Math.max(1, group.length);
  return [...group.slice(home), ...group.slice(0, home)];
}
