/** Of what is not there: a figure that nothing was measured for. */
export const NOTHING = '–';

/** "0", "950", "12 400": thousands apart by a narrow space, which does not break. */
export function formatCount(count: number): string {
  return String(Math.round(count)).replace(/\B(?=(\d{3})+(?!\d))/g, '\u202f');
}

/** "0", "0.42", "8.1", "23", "1 200": three digits at most below a thousand. */
export function formatFigure(value: number): string {
  if (value >= 99.95) return formatCount(value);
  const digits = value >= 9.995 ? 1 : 2;
  return String(Number(value.toFixed(digits)));
}

/** "0.42 ms", "38 ms", "1.2 s". */
export function formatMilliseconds(durationMs: number): string {
  return durationMs < 999.5 ? `${formatFigure(durationMs)} ms` : `${formatFigure(durationMs / 1000)} s`;
}

/** Of 0 to 1: "0 %", "4.2 %", "38 %", "96.4 %"; "100 %" for nothing less than all. */
export function formatShare(share: number): string {
  const percent = share * 100;
  const digits = percent >= 10 && percent < 90 ? 0 : 1;
  const shown = Number(percent.toFixed(digits));
  return `${shown === 100 && share < 1 ? '99.9' : String(shown)} %`;
}

/** Numbers that rise: "0, 2, 4 … 46". */
export function formatLayers(layers: readonly number[], most = 4): string {
  if (layers.length <= most) return layers.join(', ');
  return `${layers.slice(0, most - 1).join(', ')} … ${String(layers.at(-1))}`;
}
