import { median } from './median.js';

/** A figure of several rounds. */
export interface Spread {
  median: number;
  lowest: number;
  highest: number;
}

/** The median and the range of at least one value. Pure. */
export function spreadOf(values: readonly number[]): Spread {
  return { median: median(values), lowest: Math.min(...values), highest: Math.max(...values) };
}
