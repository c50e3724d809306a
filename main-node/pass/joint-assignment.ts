import type { Placement } from '../../shared/wire/messages.js';
import { leastLoaded, workersFromHome } from '../../shared/decisions/placement/assign-predicted-experts.js';
import { distinctExperts } from '../../shared/decisions/placement/draft-rows.js';
import { assignCached, type CachingWorkers } from '../../shared/decisions/placement/cached-assignment.js';
import { groupForLayer } from '../../shared/decisions/placement/plan-placement.js';
import { isStrict } from '../../shared/decisions/placement/strict-homes.js';

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
 * Assigns to workers the experts of a layer that are not announced yet; `told` has the announced ones. Each expert is assigned once: to its home if
 * that has room, else to the worker with the fewest. No worker gets more than its share of all of them, unless it had more before. An expert that a
 * taker caches goes to this taker first, within the bounds of assignCached. The result depends on the sets alone.
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
