import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import type { Placement } from '../../shared/wire/messages.js';
import {
  assignPredictedExperts,
  leastLoaded,
  workersFromHome,
} from '../../shared/decisions/placement/assign-predicted-experts.js';
import { assignCached, type CachingWorkers } from '../../shared/decisions/placement/cached-assignment.js';
import { groupForLayer } from '../../shared/decisions/placement/plan-placement.js';
import { isStrict } from '../../shared/decisions/placement/strict-homes.js';

export interface ExpertAssignment {
  expert: number;
  workerId: string;
  /** A prediction announced this expert to the worker. */
  predicted: boolean;
}

/**
 * Compares the router's choice with the announcements (OD-MoE section 3; docs/architecture.md). An announced expert runs where it is being loaded. A
 * missed one runs on a worker whose prediction was wrong, else on the least loaded of the layer's group or, with spread 'all', of all workers: on its
 * home if that is one of them. If nothing was announced (null), assignPredictedExperts places the experts, so that a prediction which has not reached
 * main is still of use.
 *
 * An expert that was not announced and that a taker caches runs on this taker, within the bounds of assignCached.
 *
 * @param told expert -> worker (assignmentOf)
 * @param activated distinct experts, of all rows of the pass
 * @returns one assignment for each activated expert, in the order given
 */
export function matchExperts(
  placement: Placement,
  layer: number,
  told: ReadonlyMap<number, string> | null,
  activated: readonly number[],
  spread: 'group' | 'all',
  keepers: CachingWorkers<string> = () => [],
): ExpertAssignment[] {
  const takers = spread === 'all' && !isStrict(placement) ? oneGroup(placement) : placement;
  if (told === null) {
    const kept = keptPlaces(takers, layer, activated, keepers, new Map());
    const others = activated.filter((expert) => !kept.has(expert));
    const fallen = new Map([...kept, ...assignPredictedExperts(takers, layer, others)]);
    return activated.map((expert) => ({ expert, workerId: holderOf(fallen, expert), predicted: false }));
  }
  const chosen = new Set(activated);
  const wrong = [...told].filter(([expert]) => !chosen.has(expert));
  const missed = placeMissedExperts(takers, layer, { told, wrong, keepers }, activated);
  return activated.map((expert) => {
    const hit = told.get(expert);
    return { expert, workerId: hit ?? holderOf(missed, expert), predicted: hit !== undefined };
  });
}

function holderOf(holders: ReadonlyMap<number, string>, expert: number): string {
  return requirePresent(holders.get(expert), () => `expert ${expert}, which is activated, falls to a worker.`);
}

/** expert -> worker, for those of the experts that a taker caches. The placed experts are added to the load. */
function keptPlaces(
  placement: Placement,
  layer: number,
  experts: readonly number[],
  keepers: CachingWorkers<string>,
  load: Map<string, number>,
): Map<number, string> {
  const keepingTakers: CachingWorkers<string> = (expert) => {
    const takers = workersFromHome(placement, layer, expert);
    return keepers(expert).filter((id) => takers.includes(id));
  };
  return assignCached(experts, keepingTakers, load, groupForLayer(placement, layer).length);
}

/** Puts the same workers into one group, so that every layer is served by all of them. */
function oneGroup(placement: Placement): Placement {
  return { ...placement, groups: [{ workerIds: placement.workers.map(({ id }) => id) }] };
}

/** missed expert -> worker id, by rising expert id so that the router's order of ranks does not matter. */
function placeMissedExperts(
  placement: Placement,
  layer: number,
  {
    told,
    wrong,
    keepers,
  }: {
    told: ReadonlyMap<number, string>;
    wrong: readonly (readonly [number, string])[];
    keepers: CachingWorkers<string>;
  },
  activated: readonly number[],
): Map<number, string> {
  const load = new Map(groupForLayer(placement, layer).map((id) => [id, 0]));
  const add = (id: string) => load.set(id, (load.get(id) ?? 0) + 1);
  for (const expert of activated) {
    const worker = told.get(expert);
    if (worker !== undefined) add(worker);
  }
  const freedPlaces = wrong.map(([, workerId]) => workerId);
  const missed = activated.filter((id) => !told.has(id));
  const placed = keptPlaces(placement, layer, missed, keepers, load);
  for (const expert of missed.filter((id) => !placed.has(id)).sort((left, right) => left - right)) {
    const fromHome = workersFromHome(placement, layer, expert);
    const freed = fromHome.filter((id) => freedPlaces.includes(id));
    const worker = leastLoaded(freed.length > 0 ? freed : fromHome, load);
    if (freed.length > 0) freedPlaces.splice(freedPlaces.indexOf(worker), 1);
    add(worker);
    placed.set(expert, worker);
  }
  return placed;
}
