import { FIGURES_KEPT_S, type FigureSample } from '../../shared/cluster-events/cluster-events.js';

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

/** What the chart's head says while no cursor is in it: the latest that was measured; null: nothing was. */
export function latestFigure(samples: readonly FigureSample[], name: FigureName): number | null {
  const latest = samples.findLast((sample) => figureOf(sample, name) !== null);
  return latest === undefined ? null : figureOf(latest, name);
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
