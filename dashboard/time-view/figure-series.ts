import { FIGURES_KEPT_S, type FigureSample } from '../../shared/wire/cluster-events.js';

export type FigureName =
  | 'tokensPerS'
  | 'ttftMs'
  | 'recall'
  | 'reloadsPerS'
  | 'draftsRight'
  | 'loadBytesPerS'
  | 'activeRequests'
  | 'queuedRequests'
  | 'rowsPerPass';

/** Seconds before the latest sample (0, and below), oldest first. */
export function secondsAgo(samples: readonly FigureSample[]): number[] {
  const latestMs = samples.at(-1)?.atMs ?? 0;
  return samples.map(({ atMs }) => (atMs - latestMs) / 1000);
}

/** Null: nothing was measured in this second. */
export function figureOf(sample: FigureSample, name: FigureName): number | null {
  if (name === 'rowsPerPass') return sample.passes > 0 ? sample.rows / sample.passes : null;
  return sample[name];
}

export function figureValues(samples: readonly FigureSample[], name: FigureName): (number | null)[] {
  return samples.map((sample) => figureOf(sample, name));
}

/** Seconds that a point of a line is the mean of: single seconds have few tokens, and would make a band of the line. */
export const MEAN_SAMPLES = 5;

/** Each value with those before it, `width` together, on the mean. What was not measured stays so, and counts for nothing. */
export function smoothed(values: readonly (number | null)[], width: number): (number | null)[] {
  return values.map((value, index) => {
    if (value === null) return null;
    const near = values.slice(Math.max(0, index - width + 1), index + 1).filter((other) => other !== null);
    return near.reduce((sum, other) => sum + other, 0) / near.length;
  });
}

/** The latest that was measured; null: nothing was. */
export function latestOf(values: readonly (number | null)[]): number | null {
  return values.findLast((value) => value !== null) ?? null;
}

/** Seconds that the charts show: from the oldest sample on, a minute at least, ten at most. */
export function shownSeconds(samples: readonly FigureSample[]): number {
  const [oldest = 0] = secondsAgo(samples);
  return Math.min(FIGURES_KEPT_S, Math.max(60, -oldest));
}

/** "now", "-30 s", "-2 min": how long before the latest sample. */
export function formatSecondsAgo(seconds: number): string {
  if (seconds === 0) return 'now';
  const ago = Math.abs(seconds);
  if (ago < 60) return `−${Math.round(ago)} s`;
  const rest = Math.round(ago) % 60;
  return `−${Math.floor(Math.round(ago) / 60)} min${rest === 0 ? '' : ` ${rest} s`}`;
}
