import type { Placement } from '../../shared/wire/messages.js';
import { leastLoaded, workersFromHome } from '../../shared/decisions/placement/assign-predicted-experts.js';
import { distinctExperts } from '../../shared/decisions/placement/draft-rows.js';
import { assignCached, type CachingWorkers } from '../../shared/decisions/placement/cached-assignment.js';
import { groupForLayer } from '../../shared/decisions/placement/plan-placement.js';
import { isStrict } from '../../shared/decisions/placement/strict-homes.js';

/**
 * The placement by which a layer's experts are given to workers in a pass of several rows: the layer's group, or, where the rows need more
 * experts than that has workers, all of them. Each expert's home is then the worker that has it in prefill. Where experts have workers of their own
 * nothing changes.
 */
export function takersOf(placement: Placement, layer: number, neededExperts: number): Placement {
  if (isStrict(placement) || neededExperts <= groupForLayer(placement, layer).length) return placement;
  return everyWorker(placement, layer);
}

/** Experts of a layer that so many different rows are expected to need. */
export function neededBy({ experts, expertsPerToken }: Placement, rows: number): number {
  return distinctExperts(experts, expertsPerToken, rows);
}

/** One group of all workers, in such an order that workersFromHome begins where workersForPrefillExpert does. */
function everyWorker(placement: Placement, layer: number): Placement {
  const ids = placement.workers.map(({ id }) => id);
  const count = Math.max(1, ids.length);
  const step = ids.length > placement.expertsPerToken ? placement.expertsPerToken : 1;
  const first = (((layer - layer * step) % count) + count) % count;
  return { ...placement, groups: [{ workerIds: [...ids.slice(first), ...ids.slice(0, first)] }] };
}

/**
 * Who loads experts of a layer that join those that workers have been told of (`told`): each once, at its home where that has room, else at
 * the worker with the least. No worker gets more than its share of all of them, unless it had more before. What a taker keeps goes there
 * first, within the bounds of assignCached. Follows from the sets alone.
 */
export function assignMoreExperts(
  takers: Placement,
  layer: number,
  told: ReadonlyMap<number, string>,
  experts: readonly number[],
  keepers: CachingWorkers<string> | null = null,
): Map<number, string> {
  const fresh = [...new Set(experts)].filter((expert) => !told.has(expert)).sort((left, right) => left - right);
  const load = new Map<string, number>();
  const assignment = new Map<number, string>();
  const give = (expert: number, worker: string): void => {
    load.set(worker, (load.get(worker) ?? 0) + 1);
    assignment.set(expert, worker);
  };
  for (const worker of told.values()) load.set(worker, (load.get(worker) ?? 0) + 1);
  const workers = isStrict(takers) ? takers.workers.length : groupForLayer(takers, layer).length;
  const share = Math.ceil((told.size + fresh.length) / Math.max(1, workers));
  if (keepers !== null) {
    const keepingTakers: CachingWorkers<string> = (expert) => {
      const candidates = workersFromHome(takers, layer, expert);
      return keepers(expert).filter((id) => candidates.includes(id));
    };
    for (const [expert, worker] of assignCached(fresh, keepingTakers, load, workers)) assignment.set(expert, worker);
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
