/** The order in which the rows of an expert are computed where some read both slices and others the upper ones alone. Pure. */
import { UPPER_READING } from '../../shared/decisions/slices/plan-readings.js';
import type { SliceReading } from '../../shared/model/tensor-source.js';

export interface ReadingOrder {
  /** In the order of computing; empty: every row reads both slices, or the expert is not sliced. */
  readonly readings: readonly SliceReading[];
  /** The place of each computed row among the rows that were asked for; null: they are computed as they were asked for. */
  readonly places: readonly number[] | null;
}

/** Rows of one reading come together, because each run of such rows reads the expert's weights once. `upper`: the places of rows that read upper slices alone. */
export function readingOrder(rows: number, upper: readonly number[]): ReadingOrder {
  if (upper.length === 0) return { readings: [], places: null };
  const isUpper = new Set(upper);
  const whole = Array.from({ length: rows }, (_, place) => place).filter((place) => !isUpper.has(place));
  const readings = Array.from({ length: rows }, (_, at) => (at < whole.length ? 'both' : UPPER_READING));
  return { readings, places: whole.length === 0 ? null : [...whole, ...upper] };
}

/** The computed rows, each at its place among those that were asked for. `rowBytes`: of one row. */
export function inPlaces(computed: Uint8Array, places: readonly number[] | null, rowBytes: number): Uint8Array {
  if (places === null) return computed;
  const placed = Buffer.allocUnsafe(computed.length);
  places.forEach((place, at) => placed.set(computed.subarray(at * rowBytes, (at + 1) * rowBytes), place * rowBytes));
  return placed;
}
