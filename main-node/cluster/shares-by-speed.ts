import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { MOST_SHARE } from '../../shared/wire/limits.js';

/** The speed of a worker, by its own reports. */
export interface MeasuredSpeed {
  /** Time to execute one expert for a row or a few. */
  executeMs: number;
  /** Time to load an expert that is in no cache. */
  loadMs: number;
  /** Experts, over all layers, that its cache holds. They cost no load. */
  cached: number;
}

/** No worker counts as faster than this, and a load or an execution counts as no longer: the numbers come from peers. */
const SHORTEST_MS = 0.001;
const LONGEST_MS = 60_000;
/** Steps of the search for the common time; each halves what is left of it. */
const STEPS = 60;

/**
 * The share of each worker in strict homes, 1 to MOST_SHARE, so that all workers would need the same time to execute each of their experts once:
 * a worker that is 3 times as fast gets 3 times as many. Experts beyond a worker's cache cost it a load, too. Null speeds (not measured) count as
 * the mean of the others' shares. The result depends on the arguments alone.
 * @param homes experts of all layers, times their homes
 */
export function sharesBySpeed(speeds: ReadonlyMap<string, MeasuredSpeed | null>, homes: number): Map<string, number> {
  const measured = [...speeds].flatMap(([id, speed]) => (speed === null ? [] : [[id, bounded(speed)] as const]));
  const counts = equalTimeCounts(
    measured.map(([, speed]) => speed),
    (homes * measured.length) / Math.max(1, speeds.size),
  );
  const most = Math.max(...counts, Number.MIN_VALUE);
  const shares = new Map(
    measured.map(([id], index) => [id, wholeShare(requirePresent(counts[index], 'each has a count.') / most)]),
  );
  const mean = measured.length === 0 ? 1 : [...shares.values()].reduce((sum, share) => sum + share, 0) / shares.size;
  return new Map([...speeds.keys()].map((id) => [id, shares.get(id) ?? Math.max(1, Math.round(mean))]));
}

/**
 * Time of the slowest worker under some shares, divided by that under others: how much faster a layer's experts run with the others. Workers that
 * are not measured do not count, and a share of 0 is one of 1. 1 if none is measured.
 */
export function gainOfShares(
  speeds: ReadonlyMap<string, MeasuredSpeed | null>,
  homes: number,
  from: ReadonlyMap<string, number>,
  to: ReadonlyMap<string, number>,
): number {
  const before = slowestMs(speeds, homes, from);
  const after = slowestMs(speeds, homes, to);
  return after > 0 ? before / after : 1;
}

function slowestMs(
  speeds: ReadonlyMap<string, MeasuredSpeed | null>,
  homes: number,
  shares: ReadonlyMap<string, number>,
): number {
  const shareOf = (id: string): number => Math.max(1, shares.get(id) ?? 0);
  const all = [...speeds.keys()].reduce((sum, id) => sum + shareOf(id), 0);
  const times = [...speeds].map(([id, speed]) =>
    speed === null ? 0 : timeOf(bounded(speed), (homes * shareOf(id)) / all),
  );
  return Math.max(0, ...times);
}

/** Time in which a worker executes each of so many experts once. */
function timeOf({ executeMs, loadMs, cached }: MeasuredSpeed, experts: number): number {
  return experts * executeMs + Math.max(0, experts - cached) * loadMs;
}

/** Experts that a worker executes in a time: the inverse of timeOf. */
function expertsIn({ executeMs, loadMs, cached }: MeasuredSpeed, ms: number): number {
  const cachedMs = cached * executeMs;
  return ms <= cachedMs ? ms / executeMs : cached + (ms - cachedMs) / (executeMs + loadMs);
}

/** Experts of each worker if all take the same time; together `homes`, apart from rounding. */
function equalTimeCounts(speeds: readonly MeasuredSpeed[], homes: number): number[] {
  let [shortest, longest] = [0, Math.max(0, ...speeds.map((speed) => timeOf(speed, homes)))];
  for (let step = 0; step < STEPS; step += 1) {
    const middle = (shortest + longest) / 2;
    const experts = speeds.reduce((sum, speed) => sum + expertsIn(speed, middle), 0);
    if (experts < homes) shortest = middle;
    else longest = middle;
  }
  return speeds.map((speed) => expertsIn(speed, longest));
}

/** The speed, with times that a worker can have. */
export function bounded({ executeMs, loadMs, cached }: MeasuredSpeed): MeasuredSpeed {
  return {
    executeMs: Math.min(LONGEST_MS, Math.max(SHORTEST_MS, executeMs)),
    loadMs: Math.min(LONGEST_MS, Math.max(0, loadMs)),
    cached: Math.max(0, cached),
  };
}

function wholeShare(part: number): number {
  return Math.max(1, Math.round(part * MOST_SHARE));
}
