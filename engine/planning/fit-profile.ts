import { logarithm, power } from '../../shared/base/arithmetic/elementary.js';
import type { ExpertSource } from '../../shared/model/tensor-source.js';
import { NO_CAPACITIES } from '../../shared/decisions/caching/pool-capacities.js';
import { type OverlapCosts, patternMakespans } from '../../shared/decisions/caching/makespan-estimate.js';
import type { LoadTimes, PartlyLoadedState } from '../../shared/decisions/caching/load-times.js';

/** What loading and executing experts costs on this machine. */
export interface MachineProfile {
  load: LoadTimes;
  costs: OverlapCosts;
}

/** What was measured, all with experts that ran as soon as they were loaded. */
export interface MeasuredLoads {
  /** Experts that were loaded together. */
  atOnce: number;
  /** Until all of them had run, by the state that they were in. */
  makespanMs: Readonly<Record<PartlyLoadedState, number>>;
  /** Until one compressed expert, loaded alone, had run. */
  oneCompressedMs: number;
  /** Running one expert on one row. */
  executeMs: number;
  /** Time of the I/O thread for one missing expert, as the loader saw it. */
  readMs: number;
}

/** Bytes of one expert of a pack, and into how many chunks its exponents are cut. */
export interface ExpertBytes {
  exponent: number;
  /** Exponents before they were coded. */
  plainExponent: number;
  signMantissa: number;
  tensors: number;
  /** K: of each tensor's exponents. */
  shards: number;
}

const MOST_INTERFERENCE = 2;
/** Times for reading that are tried, down from all of the time of a load from storage. */
const READ_STEPS = 40;
const FASTEST_SHARE = 1 / 100;
/** Parts of that time that are tried as the reads' own, whatever their size. */
const LATENCY_SHARES = [0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7];
/** Where several fits are as good: reading as the loader saw it, in proportion to bytes, without interference. */
const SEEN_RATE_WEIGHT = 1e-4;
const LATENCY_WEIGHT = 1e-3;
const INTERFERENCE_WEIGHT = 1e-3;

/**
 * The costs with which the simulated schedules take as long as what was measured: c and the start from what needs no reading; u and v,
 * of which a part goes by bytes and a part is each read's own, and the interference from the rest. What threads lose to one
 * another, to waking up and to the processor's other work is in these costs; the loader's own sums of operations would leave it out.
 * `threads`: L.
 */
export function fitProfile(measured: MeasuredLoads, bytes: ExpertBytes, threads: number): MachineProfile {
  const { atOnce, makespanMs, readMs: seenReadMs } = measured;
  const { tensors, shards } = bytes;
  const { decompressMs, costs } = fitDecompression(measured, bytes, threads);
  const allBytes = bytes.exponent + bytes.signMantissa;
  const profileAt = (readMs: number, latencyShare: number): LoadTimes => {
    const latencyMs = (readMs * latencyShare) / (tensors * (shards + 1));
    const msPerByte = (readMs * (1 - latencyShare)) / allBytes;
    return {
      signMantissaReadMs: latencyMs + (msPerByte * bytes.signMantissa) / tensors,
      exponentReadMs: latencyMs + (msPerByte * bytes.exponent) / tensors / shards,
      decompressMs,
      threads,
      shards,
      tensors,
      compressionRatio: bytes.exponent / bytes.plainExponent,
    };
  };
  let best: MachineProfile = { load: profileAt(seenReadMs, 0), costs };
  let least = Infinity;
  for (let step = 0; step <= READ_STEPS; step += 1) {
    const readMs = (makespanMs.missing / atOnce) * power(FASTEST_SHARE, 1 - step / READ_STEPS);
    const strangeness = SEEN_RATE_WEIGHT * logarithm(readMs / Math.max(seenReadMs, Number.MIN_VALUE)) ** 2;
    for (const latencyShare of LATENCY_SHARES) {
      const load = profileAt(readMs, latencyShare);
      const { interference, misfit } = fitInterference(measured, load, costs);
      const simplicity = LATENCY_WEIGHT * latencyShare + INTERFERENCE_WEIGHT * interference;
      if (misfit + strangeness + simplicity >= least) continue;
      least = misfit + strangeness + simplicity;
      best = { load, costs: { ...costs, interference } };
    }
  }
  return best;
}

/** One compressed expert and several: what is there once is the start, what there is more of is decompression. */
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

/** Least squares of the measured makespans over the simulated ones plus interference; relative errors. */
function fitInterference(
  { atOnce, makespanMs }: MeasuredLoads,
  profile: LoadTimes,
  costs: OverlapCosts,
): { interference: number; misfit: number } {
  const alone = patternMakespans(atOnce, profile, costs);
  const interfering = patternMakespans(atOnce, profile, { ...costs, interference: 1 });
  const states = (['missing', 'exponent', 'signMantissa'] as const).map((state) => {
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

/** Of one of the model's experts. */
export function expertBytesByPart({ gate, up, down }: ExpertSource): ExpertBytes {
  const tensors = [gate, up, down];
  const chunks = tensors.flatMap((tensor) => tensor.chunks);
  const exponents = chunks.filter(({ plane }) => plane === 0);
  const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
  const exponent = sum(exponents.map(({ storedBytes }) => storedBytes));
  return {
    exponent,
    plainExponent: sum(exponents.map(({ plainBytes }) => plainBytes)),
    signMantissa: sum(chunks.map(({ storedBytes }) => storedBytes)) - exponent,
    tensors: tensors.length,
    shards: Math.max(1, Math.round(exponents.length / tensors.length)),
  };
}
