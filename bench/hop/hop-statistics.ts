export interface HopTimes {
  medianUs: number;
  p99Us: number;
  roundTrips: number;
}

/** Median and 99th percentile (nearest rank) of durations in microseconds; zeros of none. */
export function summarizeHops(durationsUs: readonly number[]): HopTimes {
  const sorted = [...durationsUs].sort((left, right) => left - right);
  const rank = (share: number): number => sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? 0;
  return { medianUs: rank(0.5), p99Us: rank(0.99), roundTrips: sorted.length };
}
