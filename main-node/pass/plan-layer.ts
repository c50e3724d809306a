import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import type { ActivatedRow } from '../../shared/decisions/placement/activated-experts.js';
import type { AssignedWork } from './expert-work.js';
import { expertsByWorker } from '../../shared/decisions/placement/experts-by-worker.js';
import { type CachingWorkers, assignCached } from '../../shared/decisions/placement/cached-assignment.js';
import type { Placement } from '../../shared/wire/messages.js';
import {
  assignPredictedExperts,
  leastLoaded,
  workersFromHome,
} from '../../shared/decisions/placement/assign-predicted-experts.js';
import { groupForLayer } from '../../shared/decisions/placement/plan-placement.js';
import { isStrict } from '../../shared/decisions/placement/strict-homes.js';
import { distinctExperts } from '../../shared/decisions/placement/draft-rows.js';

/** The announcements of a layer at the time when its router chooses. */
export interface AnnouncedLayer {
  /** expert -> workers that load it, first the one that is to run it; null: nothing was announced. */
  holders: ReadonlyMap<number, readonly string[]> | null;
  /** Experts that others have announced to a worker that is not a holder: they are to be released there. */
  superseded: readonly (readonly [expert: number, workerId: string])[];
  /** Experts of the holders that main did not expect any more: they count as not announced. Left out: none. */
  doubted?: ReadonlySet<number>;
  /** All experts of the layer were announced. */
  isWholeLayer: boolean;
}

/** The plan for a layer's experts once its router has chosen. */
export interface LayerPlan {
  /** In the order of sending. */
  work: AssignedWork[];
  /** worker -> experts that were announced to it and that it is not asked for. */
  releases: ReadonlyMap<string, number[]>;
  /** Experts that run on the worker to which they were announced, but for those that main doubted. */
  asAnnounced: ReadonlySet<number>;
}

export interface LayerPlanOptions {
  spread: 'group' | 'all';
  /** The pass has rows of one sequence's answer alone: they stay with the layer's group however many experts they need. */
  isAlone: boolean;
  /** Most rows of an expert that go out at a time; Infinity: all at once. */
  batchRows: number;
  /** The workers that cache each expert of the layer. Left out: experts stay at their homes, whichever worker caches them. */
  cachingWorkers?: CachingWorkers<string>;
}

/**
 * Compares the router's choice with the announcements (matchExperts), and cuts the rows of each expert into mini-batches (OD-MoE section 3.3), which
 * alternate among the workers that hold the expert. Pure.
 */
export function planLayer(
  placement: Placement,
  layer: number,
  announced: AnnouncedLayer,
  activated: ReadonlyMap<number, readonly ActivatedRow[]>,
  { spread, isAlone, batchRows, cachingWorkers }: LayerPlanOptions,
): LayerPlan {
  const experts = [...activated.keys()];
  const takers = isAlone ? placement : takersOf(placement, layer, spread === 'all' ? Infinity : experts.length);
  const runners = firstHolders(announced);
  const assignment = matchExperts(takers, layer, runners, experts, isAlone ? spread : 'group', cachingWorkers);
  const released = [...announced.superseded];
  for (const [expert, ids] of announced.holders ?? [])
    if (!activated.has(expert)) released.push(...ids.map((id) => [expert, id] as const));
  const work: AssignedWork[] = [];
  const asAnnounced = new Set<number>();
  for (const [expert, workerId] of assignment) {
    const rows = requirePresent(activated.get(expert), 'an expert that is assigned to a worker was activated.');
    const isAnnounced = runners?.has(expert) === true;
    const workers = isAnnounced ? (announced.holders?.get(expert) ?? [workerId]) : [workerId];
    if (isAnnounced && announced.doubted?.has(expert) !== true) asAnnounced.add(expert);
    const count = Math.ceil(rows.length / batchRows) || 1;
    for (let batch = 0; batch < count; batch++)
      work.push({
        workerId: workers[batch % workers.length] ?? workerId,
        layer,
        expert,
        rows: count === 1 ? rows : rows.slice(batch * batchRows, (batch + 1) * batchRows),
        last: batch + workers.length >= count,
      });
    released.push(...workers.slice(count).map((id) => [expert, id] as const));
  }
  // The order in which workers expect the experts, so that a worker with one slot loads each expert once.
  if (announced.isWholeLayer || batchRows < Infinity) work.sort((left, right) => left.expert - right.expert);
  return { work, releases: expertsByWorker(released), asAnnounced };
}

function firstHolders({ holders }: AnnouncedLayer): Map<number, string> | null {
  if (holders === null) return null;
  return new Map(
    [...holders].flatMap(([expert, [worker]]) => (worker === undefined ? [] : [[expert, worker] as const])),
  );
}

/**
 * Compares the router's choice with the announcements (OD-MoE section 3; docs/architecture.md). An announced expert runs where it is being loaded.
 * A missed expert runs on a worker whose prediction was wrong, else on the least loaded of the layer's group or, with spread 'all', of all workers:
 * on its home if that is one of them. If nothing was announced (null), assignPredictedExperts places the experts, so that a prediction which has not
 * reached main is still of use.
 *
 * An expert that was not announced and that a taker caches runs on this taker, within the bounds of assignCached.
 *
 * @param announced expert -> worker (assignmentOf)
 * @param activated distinct experts, of all rows of the pass
 * @returns activated expert -> the worker that runs it, in the order given
 */
export function matchExperts(
  placement: Placement,
  layer: number,
  announced: ReadonlyMap<number, string> | null,
  activated: readonly number[],
  spread: 'group' | 'all',
  cachingWorkers: CachingWorkers<string> = () => [],
): Map<number, string> {
  const takers = spread === 'all' && !isStrict(placement) ? oneGroup(placement) : placement;
  if (announced === null) {
    const cached = cachedPlaces(takers, layer, activated, cachingWorkers, new Map());
    const others = activated.filter((expert) => !cached.has(expert));
    const fallen = new Map([...cached, ...assignPredictedExperts(takers, layer, others)]);
    return new Map(activated.map((expert) => [expert, holderOf(fallen, expert)]));
  }
  const chosen = new Set(activated);
  const wrong = [...announced].filter(([expert]) => !chosen.has(expert));
  const placed = placeMissedExperts(takers, layer, { announced, wrong, cachingWorkers }, activated);
  return new Map(activated.map((expert) => [expert, announced.get(expert) ?? holderOf(placed, expert)]));
}

function holderOf(holders: ReadonlyMap<number, string>, expert: number): string {
  return requirePresent(holders.get(expert), () => `expert ${expert}, which is activated, falls to a worker.`);
}

/** expert -> worker, for those of the experts that a taker caches. The placed experts are added to the load. */
function cachedPlaces(
  placement: Placement,
  layer: number,
  experts: readonly number[],
  cachingWorkers: CachingWorkers<string>,
  load: Map<string, number>,
): Map<number, string> {
  const cachingTakers: CachingWorkers<string> = (expert) => {
    const takers = workersFromHome(placement, layer, expert);
    return cachingWorkers(expert).filter((id) => takers.includes(id));
  };
  return assignCached(experts, cachingTakers, load, groupForLayer(placement, layer).length);
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
    announced,
    wrong,
    cachingWorkers,
  }: {
    announced: ReadonlyMap<number, string>;
    wrong: readonly (readonly [number, string])[];
    cachingWorkers: CachingWorkers<string>;
  },
  activated: readonly number[],
): Map<number, string> {
  const load = new Map(groupForLayer(placement, layer).map((id) => [id, 0]));
  const add = (id: string) => load.set(id, (load.get(id) ?? 0) + 1);
  for (const expert of activated) {
    const worker = announced.get(expert);
    if (worker !== undefined) add(worker);
  }
  const freedPlaces = wrong.map(([, workerId]) => workerId);
  const missed = activated.filter((id) => !announced.has(id));
  const placed = cachedPlaces(placement, layer, missed, cachingWorkers, load);
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

/**
 * The placement by which a layer's experts are given to workers in a pass of several rows. It has the layer's group, or all workers if the rows need
 * more experts than the group has workers. With all workers, each expert's home is the worker that has it in prefill. Strict homes change nothing
 * here.
 */
export function takersOf(placement: Placement, layer: number, neededExperts: number): Placement {
  if (isStrict(placement) || neededExperts <= groupForLayer(placement, layer).length) return placement;
  return everyWorker(placement, layer);
}

/** Number of experts of a layer that so many different rows are expected to need. */
export function neededBy({ experts, expertsPerToken }: Placement, rows: number): number {
  return distinctExperts(experts, expertsPerToken, rows);
}

/** Puts all workers into one group, ordered so that workersFromHome begins with the same worker as workersForPrefillExpert. */
function everyWorker(placement: Placement, layer: number): Placement {
  const ids = placement.workers.map(({ id }) => id);
  const count = Math.max(1, ids.length);
  const step = ids.length > placement.expertsPerToken ? placement.expertsPerToken : 1;
  const first = (((layer - layer * step) % count) + count) % count;
  return { ...placement, groups: [{ workerIds: [...ids.slice(first), ...ids.slice(0, first)] }] };
}

/**
 * Assigns to workers the experts of a layer that are not announced yet; `announced` has the others. Each expert is assigned once: to its home if that
 * has room, else to the worker with the fewest. No worker gets more than its share of all of them, unless it had more before. An expert that a taker
 * caches goes to this taker first, within the bounds of assignCached. The result depends on the sets alone.
 */
export function assignMoreExperts(
  takers: Placement,
  layer: number,
  announced: ReadonlyMap<number, string>,
  experts: readonly number[],
  cachingWorkers: CachingWorkers<string> | null = null,
): Map<number, string> {
  const fresh = [...new Set(experts)].filter((expert) => !announced.has(expert)).sort((left, right) => left - right);
  const load = new Map<string, number>();
  const assignment = new Map<number, string>();
  const give = (expert: number, worker: string): void => {
    load.set(worker, (load.get(worker) ?? 0) + 1);
    assignment.set(expert, worker);
  };
  for (const worker of announced.values()) load.set(worker, (load.get(worker) ?? 0) + 1);
  const workers = isStrict(takers) ? takers.workers.length : groupForLayer(takers, layer).length;
  const share = Math.ceil((announced.size + fresh.length) / Math.max(1, workers));
  if (cachingWorkers !== null) {
    const cachingTakers: CachingWorkers<string> = (expert) => {
      const candidates = workersFromHome(takers, layer, expert);
      return cachingWorkers(expert).filter((id) => candidates.includes(id));
    };
    for (const [expert, worker] of assignCached(fresh, cachingTakers, load, workers)) assignment.set(expert, worker);
  }
  for (const expert of fresh) {
    if (assignment.has(expert)) continue;
    const [home] = workersFromHome(takers, layer, expert);
    if (home !== undefined && (load.get(home) ?? 0) < share) give(expert, home);
  }
  for (const expert of fresh) {
    if (assignment.has(expert)) continue;
    const candidates = workersFromHome(takers, layer, expert);
    if (candidates.length > 0) give(expert, leastLoaded(candidates, load));
  }
  return assignment;
}
