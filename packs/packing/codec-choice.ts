/** Finds the codec that loads an expert fastest on a machine: `odmoe pack --codec auto`. Pure. */
import { type CodecSetting, REPRODUCIBLE_CODECS } from '../format/pack-codec.js';

/** Speed and ratio of a codec for a sample of a model on one core. Bytes are those of the weights as shipped. */
export interface CodecMeasurement extends CodecSetting {
  /** Stored bytes of experts divided by shipped bytes. */
  ratio: number;
  encodeBytesPerS: number;
  /** Includes joining the values from their planes. */
  decodeBytesPerS: number;
}

export interface LoadingMachine {
  storageBytesPerS: number;
  decompressionThreads: number;
}

/** A measurement, with the resulting times to load one expert. */
export interface LoadEstimate extends CodecMeasurement {
  readMs: number;
  decompressMs: number;
  /** Reading and decompressing overlap, so this is the longer of the two. */
  loadMs: number;
}

export interface CodecChoice {
  chosen: LoadEstimate;
  /** Estimates of all measured codecs, in the given order. */
  estimates: LoadEstimate[];
  reason: string;
}

/** Load times that differ by less count as equal: measurements are no more accurate. */
const LOAD_TOLERANCE = 0.03;
/** Ratios that differ by less count as equal. */
const RATIO_TOLERANCE = 0.02;

/** Default decompression threads of a loader with this many cores: half of them, at most 8. */
export function usualDecompressionThreads(cores: number): number {
  return Math.max(1, Math.min(8, Math.floor(cores / 2)));
}

/**
 * Chooses the codec with the fastest load. Among equally fast ones it takes the smallest; among equally small ones, one that gives the same pack
 * on every machine, and else the one that packs fastest.
 * @param measurements at least one
 * @param expertBytes bytes of one expert as shipped
 */
export function chooseCodec(
  measurements: readonly CodecMeasurement[],
  expertBytes: number,
  machine: LoadingMachine,
): CodecChoice {
  const estimates = measurements.map((measurement) => estimateLoad(measurement, expertBytes, machine));
  const fastest = Math.min(...estimates.map((estimate) => estimate.loadMs));
  const fast = estimates.filter((estimate) => estimate.loadMs <= fastest * (1 + LOAD_TOLERANCE));
  const smallest = Math.min(...fast.map((estimate) => estimate.ratio));
  const small = fast.filter((estimate) => estimate.ratio <= smallest + RATIO_TOLERANCE);
  const reproducible = small.filter((estimate) => REPRODUCIBLE_CODECS.has(estimate.codec));
  const last = reproducible.length > 0 ? reproducible : small;
  const chosen = last.reduce((best, estimate) => (estimate.encodeBytesPerS > best.encodeBytesPerS ? estimate : best));
  return { chosen, estimates, reason: reasonFor(chosen, fast.length, small.length) };
}

function estimateLoad(
  measurement: CodecMeasurement,
  expertBytes: number,
  { storageBytesPerS, decompressionThreads }: LoadingMachine,
): LoadEstimate {
  const readMs = ((expertBytes * measurement.ratio) / storageBytesPerS) * 1000;
  const decompressMs = (expertBytes / (measurement.decodeBytesPerS * decompressionThreads)) * 1000;
  return { ...measurement, readMs, decompressMs, loadMs: Math.max(readMs, decompressMs) };
}

function reasonFor(chosen: LoadEstimate, fast: number, small: number): string {
  const bound =
    chosen.readMs >= chosen.decompressMs
      ? 'an expert is loaded as fast as storage gives it'
      : 'an expert is loaded as fast as the cores decompress it';
  if (fast === 1) return `fastest load: ${bound}`;
  if (small === 1) return `smallest of ${fast} that load about equally fast: ${bound}`;
  const merit = REPRODUCIBLE_CODECS.has(chosen.codec) ? 'gives the same pack on every machine' : 'packs fastest';
  return `of ${small} that load about equally fast and are about equally small, it ${merit}: ${bound}`;
}
