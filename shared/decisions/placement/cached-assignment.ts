/** Who keeps all of an expert of a layer, plain or compressed. */
export type CachingWorkers<Worker> = (expert: number) => readonly Worker[];

/** Experts that a worker may have beyond its share of a layer, if it keeps them: running one more takes less than loading it elsewhere. */
export const KEPT_BEYOND_SHARE = 1;

/**
 * Gives experts to workers that keep them: of several the one with the least. No worker gets more than its share of all of the layer and
 * KEPT_BEYOND_SHARE; what is left over, and what nobody keeps, is not in the answer. Follows from the sets alone.
 * @param load what each worker has of the layer already; what is given is added
 * @param workers among which the layer is shared
 */
export function assignCached<Worker>(
  experts: readonly number[],
  keepers: CachingWorkers<Worker>,
  load: Map<Worker, number>,
  workers: number,
): Map<number, Worker> {
  const given = new Map<number, Worker>();
  const sorted = [...new Set(experts)].sort((left, right) => left - right);
  const before = [...load.values()].reduce((sum, count) => sum + count, 0);
  const most = Math.ceil((before + sorted.length) / Math.max(1, workers)) + KEPT_BEYOND_SHARE;
  const loadOf = (worker: Worker): number => load.get(worker) ?? 0;
  for (const expert of sorted) {
    const [first, ...others] = keepers(expert).filter((worker) => loadOf(worker) < most);
    if (first === undefined) continue;
    const worker = others.reduce((best, other) => (loadOf(other) < loadOf(best) ? other : best), first);
    load.set(worker, loadOf(worker) + 1);
    given.set(expert, worker);
  }
  return given;
}
