/** The workers that cache all of an expert of a layer, full or compressed. */
export type CachingWorkers<Worker> = (expert: number) => readonly Worker[];

/** Experts that a worker may get beyond its share of a layer if it has cached them: to run one more takes less time than to load it elsewhere. */
export const CACHED_BEYOND_SHARE = 1;

/**
 * Assigns experts to workers that cache them; if several do, to the one with the least load. No worker gets more than its share of the whole
 * layer plus CACHED_BEYOND_SHARE. Experts beyond that, and experts that no worker caches, are missing in the result. The result depends on the
 * sets alone.
 * @param load experts of the layer that each worker has already; the assigned ones are added
 * @param workers number of workers that share the layer
 */
export function assignCached<Worker>(
  experts: readonly number[],
  cachingWorkers: CachingWorkers<Worker>,
  load: Map<Worker, number>,
  workers: number,
): Map<number, Worker> {
  const given = new Map<number, Worker>();
  const sorted = [...new Set(experts)].sort((left, right) => left - right);
  const before = [...load.values()].reduce((sum, count) => sum + count, 0);
  const most = Math.ceil((before + sorted.length) / Math.max(1, workers)) + CACHED_BEYOND_SHARE;
  const loadOf = (worker: Worker): number => load.get(worker) ?? 0;
  for (const expert of sorted) {
    const [first, ...others] = cachingWorkers(expert).filter((worker) => loadOf(worker) < most);
    if (first === undefined) continue;
    const worker = others.reduce((best, other) => (loadOf(other) < loadOf(best) ? other : best), first);
    load.set(worker, loadOf(worker) + 1);
    given.set(expert, worker);
  }
  return given;
}
