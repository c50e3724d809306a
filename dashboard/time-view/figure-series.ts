import { REMEMBERED_FIGURES_S, type FigureSample } from '../../shared/wire/cluster-events.js';

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

/** Times of the samples in seconds, relative to the latest one (0 and below), oldest first. */
export function secondsAgo(samples: readonly FigureSample[]): number[] {
  const latestMs = samples.at(-1)?.atMs ?? 0;
  return samples.map(({ atMs }) => (atMs - latestMs) / 1000);
}

/** The figure of a sample; null: nothing was measured in this second. */
export function figureOf(sample: FigureSample, name: FigureName): number | null {
  if (name === 'rowsPerPass') return sample.passes > 0 ? sample.rows / sample.passes : null;
  return sample[name];
}

export function figureValues(samples: readonly FigureSample[], name: FigureName): (number | null)[] {
  return samples.map((sample) => figureOf(sample, name));
}

/** Seconds that each point of a line averages: single seconds have few tokens and would turn the line into a band. */
export const MEAN_SAMPLES = 5;

/** The mean of each value and the values before it, `width` in all. Values without a measurement stay null and do not count. */
export function smoothed(values: readonly (number | null)[], width: number): (number | null)[] {
  return values.map((value, index) => {
    if (value === null) return null;
    const near = values.slice(Math.max(0, index - width + 1), index + 1).filter((other) => other !== null);
    return near.reduce((sum, other) => sum + other, 0) / near.length;
  });
}

/** The latest measured value; null: there is none. */
export function latestOf(values: readonly (number | null)[]): number | null {
  return values.findLast((value) => value !== null) ?? null;
}

/** Seconds that the charts show: from the oldest sample, but at least one minute and at most ten. */
export function shownSeconds(samples: readonly FigureSample[]): number {
  const [oldest = 0] = secondsAgo(samples);
  return Math.min(REMEMBERED_FIGURES_S, Math.max(60, -oldest));
}

/** The time before the latest sample: "now", "-30 s", "-2 min". */
export function formatSecondsAgo(seconds: number): string {
  if (seconds === 0) return 'now';
  const ago = Math.abs(seconds);
  if (ago < 60) return `−${Math.round(ago)} s`;
  const rest = Math.round(ago) % 60;
  return `−${Math.floor(Math.round(ago) / 60)} min${rest === 0 ? '' : ` ${rest} s`}`;
}
