/** Stands in place of a figure that was not measured. */
export const NOTHING = '–';

/** For example "0", "950" or "12 400"; a narrow space that does not break separates the thousands. */
export function formatCount(count: number): string {
  return String(Math.round(count)).replace(/\B(?=(\d{3})+(?!\d))/g, '\u202f');
}

/** For example "0", "0.42", "8.1", "23" or "1 200": at most three digits below a thousand. */
export function formatFigure(value: number): string {
  if (value >= 99.95) return formatCount(value);
  const digits = value >= 9.995 ? 1 : 2;
  return String(Number(value.toFixed(digits)));
}

/** For example "0.42 ms", "38 ms" or "1.2 s". */
export function formatMilliseconds(durationMs: number): string {
  return durationMs < 999.5 ? `${formatFigure(durationMs)} ms` : `${formatFigure(durationMs / 1000)} s`;
}

/** A share from 0 to 1: "0 %", "4.2 %", "38 %", "96.4 %"; only a share of 1 gives "100 %". */
export function formatShare(share: number): string {
  const percent = share * 100;
  const digits = percent >= 10 && percent < 90 ? 0 : 1;
  const shown = Number(percent.toFixed(digits));
  return `${shown === 100 && share < 1 ? '99.9' : String(shown)} %`;
}

/** A day of the reader's calendar: "25 Nov 2026". `timeMs`: milliseconds since 1970. */
export function formatDay(timeMs: number): string {
  return new Date(timeMs).toLocaleDateString('en-GB', { day: 'numeric', month: 'short', year: 'numeric' });
}

/** Ascending numbers: "0, 2, 4 … 46". */
export function formatLayers(layers: readonly number[], most = 4): string {
  if (layers.length <= most) return layers.join(', ');
  return `${layers.slice(0, most - 1).join(', ')} … ${String(layers.at(-1))}`;
}

/** A time of the reader's clock: "14:05:09", and with the day before it where that is not today's. Both in milliseconds since 1970. */
export function formatClock(timeMs: number, nowMs: number): string {
  const time = new Date(timeMs).toLocaleTimeString('en-GB');
  const day = formatDay(timeMs);
  return day === formatDay(nowMs) ? time : `${day}, ${time}`;
}
