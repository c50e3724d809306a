import { storedPartBytes } from '../../shared/model/part-sizes.js';
import { logarithm, power } from '../../shared/base/arithmetic/elementary.js';
import { partOfPlane, PARTS, sumOfParts, type PerPart } from '../../shared/model/expert-parts.js';
import type { ExpertSource } from '../../shared/model/tensor-source.js';
import { NO_CAPACITIES } from '../../shared/decisions/caching/pool-capacities.js';
import { type OverlapCosts, patternMakespans } from '../../shared/decisions/caching/makespan-estimate.js';
import type { LoadTimes, PartlyLoadedState } from '../../shared/decisions/caching/load-times.js';

/** The costs of loading and executing experts on this machine. */
export interface MachineTimes {
  load: LoadTimes;
  costs: OverlapCosts;
}

/** Measured times, all with experts that ran as soon as they were loaded. */
export interface MeasuredLoads {
  /** Number of experts that were loaded together. */
  atOnce: number;
  /** Time until all of them had run, by their state before the load. */
  makespanMs: Readonly<Record<PartlyLoadedState, number>>;
  /** Time until one compressed expert, loaded alone, had run. */
  oneCompressedMs: number;
  /** Time to run one expert on one row. */
  executeMs: number;
  /** Time of the I/O thread for one missing expert, as the loader measured it. */
  readMs: number;
}

/** Bytes of one expert of a pack, and the number of chunks of its exponents. */
export interface ExpertBytes {
  stored: PerPart<number>;
  /** Exponents before coding. */
  plainExponent: number;
  tensors: number;
  /** K: number of chunks of each tensor's exponents. */
  shards: number;
}

const MOST_INTERFERENCE = 2;
/** Number of read times to try, from the whole time of a load from storage downwards. */
const READ_STEPS = 40;
const FASTEST_SHARE = 1 / 100;
/** Shares of that time to try as a fixed time of each read, independent of its size. */
const LATENCY_SHARES = [0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7];
/** Weights to choose among equally good fits: prefer the loader's measured read time, in proportion to bytes, without interference. */
const SEEN_RATE_WEIGHT = 1e-4;
const LATENCY_WEIGHT = 1e-3;
const INTERFERENCE_WEIGHT = 1e-3;

/**
 * Finds the costs for which the simulated schedules take as long as the measured loads. c and the start come from loads without reads. u and v,
 * which consist of a time per byte and a fixed time per read, and the interference come from the rest. These costs include the time that
 * threads lose to each other, to waking up and to other work of the processor; the loader's sums of operations would not include it. `threads`:
 * L.
 */
export function fitMachineTimes(measured: MeasuredLoads, bytes: ExpertBytes, threads: number): MachineTimes {
  const { atOnce, makespanMs, readMs: seenReadMs } = measured;
  const { tensors, shards } = bytes;
  const { decompressMs, costs } = fitDecompression(measured, bytes, threads);
  const allBytes = sumOfParts(bytes.stored);
  const timesAt = (readMs: number, latencyShare: number): LoadTimes => {
    const latencyMs = (readMs * latencyShare) / (tensors * (shards + 1));
    const msPerByte = (readMs * (1 - latencyShare)) / allBytes;
    return {
      signMantissaReadMs: latencyMs + (msPerByte * bytes.stored.signMantissa) / tensors,
      exponentReadMs: latencyMs + (msPerByte * bytes.stored.exponent) / tensors / shards,
      decompressMs,
      threads,
      shards,
      tensors,
      compressionRatio: bytes.stored.exponent / bytes.plainExponent,
    };
  };
  let best: MachineTimes = { load: timesAt(seenReadMs, 0), costs };
  let least = Infinity;
  for (let step = 0; step <= READ_STEPS; step += 1) {
    const readMs = (makespanMs.missing / atOnce) * power(FASTEST_SHARE, 1 - step / READ_STEPS);
    const strangeness = SEEN_RATE_WEIGHT * logarithm(readMs / Math.max(seenReadMs, Number.MIN_VALUE)) ** 2;
    for (const latencyShare of LATENCY_SHARES) {
      const load = timesAt(readMs, latencyShare);
      const { interference, misfit } = fitInterference(measured, load, costs);
      const simplicity = LATENCY_WEIGHT * latencyShare + INTERFERENCE_WEIGHT * interference;
      if (misfit + strangeness + simplicity >= least) continue;
      least = misfit + strangeness + simplicity;
      best = { load, costs: { ...costs, interference } };
    }
  }
  return best;
}

/** Compares one compressed expert with several: the constant part is the start, the growing part is decompression. */
function fitDecompression(
  { atOnce, makespanMs, oneCompressedMs, executeMs }: MeasuredLoads,
  { tensors, shards }: ExpertBytes,
  threads: number,
): { decompressMs: number; costs: OverlapCosts } {
  const stepsOf = (experts: number): number => Math.ceil((tensors * shards * experts) / threads);
  const together = Math.max(0, makespanMs.compressed - executeMs);
  const costs = { executeMs, startMs: 0, interference: 0 };
  if (atOnce === 1) return { decompressMs: together / stepsOf(1), costs };
  const alone = Math.max(0, oneCompressedMs - executeMs);
  const decompressMs = Math.min(
    together / stepsOf(atOnce),
    Math.max(0, (together - alone) / (stepsOf(atOnce) - stepsOf(1))),
  );
  return { decompressMs, costs: { ...costs, startMs: together - decompressMs * stepsOf(atOnce) } };
}

/** Fits the measured makespans by the simulated ones plus interference, with least squares of the relative errors. */
function fitInterference(
  { atOnce, makespanMs }: MeasuredLoads,
  loadTimes: LoadTimes,
  costs: OverlapCosts,
): { interference: number; misfit: number } {
  const alone = patternMakespans(atOnce, loadTimes, costs);
  const interfering = patternMakespans(atOnce, loadTimes, { ...costs, interference: 1 });
  const states = (['missing', ...PARTS] as const).map((state) => {
    const hits = state === 'missing' ? NO_CAPACITIES : { ...NO_CAPACITIES, [state]: atOnce };
    const [base, more] = [alone(hits), interfering(hits)];
    return { base: base / makespanMs[state], slope: (more - base) / makespanMs[state] };
  });
  const squares = states.reduce((sum, { slope }) => sum + slope * slope, 0);
  const products = states.reduce((sum, { base, slope }) => sum + (1 - base) * slope, 0);
  const interference = squares === 0 ? 0 : Math.min(MOST_INTERFERENCE, Math.max(0, products / squares));
  const misfit = states.reduce((sum, { base, slope }) => sum + (base + interference * slope - 1) ** 2, 0);
  return { interference, misfit };
}

/** Bytes of one expert of the model, by part. */
export function expertBytesByPart(expert: ExpertSource): ExpertBytes {
  const tensors = [expert.gate, expert.up, expert.down];
  const exponents = tensors.flatMap(({ chunks }) => chunks.filter(({ plane }) => partOfPlane(plane) === 'exponent'));
  return {
    stored: storedPartBytes(expert),
    plainExponent: exponents.reduce((sum, { plainBytes }) => sum + plainBytes, 0),
    tensors: tensors.length,
    shards: Math.max(1, Math.round(exponents.length / tensors.length)),
  };
}
