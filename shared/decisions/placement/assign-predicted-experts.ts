import { OdmoeError } from '../../base/errors/odmoe-error.js';
import type { Placement } from '../../wire/messages.js';
import { keeperOf } from './kept-experts.js';
import { groupForLayer } from './plan-placement.js';
import { strictHomesOf, isStrict } from './strict-homes.js';

/**
 * Assigns each expert to a worker of the layer's group, which loads it. The result depends on the set of experts only, so shadow (which
 * predicts) and main (which knows the router's choice) get the same result without a message. No worker gets more than ceil(experts / group
 * size).
 * Every expert of a layer has a home in the group, the same at every token, so that a cached expert is found again. If more experts have one
 * home than it may get, those with the higher ids go to the next workers with room, in the order of the group. Homes are rotated from layer to
 * layer. In a group with spares they move by as many places as a layer assigns experts, so that a layer begins where the one before stopped.
 * This matters in a cacheless cluster, where a worker that rests has a head start on its next load: a spare is home to as many experts as any
 * other worker and works as much, and the workers rest in turn, apart from the randomness of the router's choice. Without a spare every worker
 * has work at every layer, and homes move by one place, which spreads experts that are popular at every layer.
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

/** Each expert goes to the worker that keeps it, else to one of its homes: the one with the fewest experts of the layer so far. */
function assignToHomes(placement: Placement, layer: number, sorted: readonly number[]): Map<number, string> {
  const assignment = new Map<number, string>();
  const load = new Map<string, number>();
  for (const expert of sorted) {
    const worker = keeperOf(placement, layer, expert) ?? leastLoaded(strictHomesOf(placement, layer, expert), load);
    load.set(worker, (load.get(worker) ?? 0) + 1);
    assignment.set(expert, worker);
  }
  return assignment;
}

/** The first of the candidates with the least load. `candidates` must not be empty. */
export function leastLoaded(candidates: readonly string[], load: ReadonlyMap<string, number>): string {
  return candidates.reduce((best, id) => ((load.get(id) ?? 0) < (load.get(best) ?? 0) ? id : best));
}

/** The workers that are asked to take an expert, its home first: those of the layer's group, or the expert's homes. */
export function workersFromHome(placement: Placement, layer: number, expert: number): readonly string[] {
  if (isStrict(placement)) return strictHomesOf(placement, layer, expert);
  const group = groupForLayer(placement, layer);
  const visit = Math.floor(layer / Math.max(1, placement.groups.length));
  const step = group.length > placement.expertsPerToken ? placement.expertsPerToken : 1;
  const home = (expert + visit * step) % Math.max(1, group.length);
  return [...group.slice(home), ...group.slice(0, home)];
}
