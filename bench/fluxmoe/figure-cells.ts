/** The parts of a figure of `odmoe bench fluxmoe`. */
export const FIGURES = [
  'table1',
  'figure2',
  'figure5',
  'figure6',
  'figure7',
  'figure8',
  'figure9',
  'figure10',
] as const;
export type Figure = (typeof FIGURES)[number];

export interface FigureCell {
  figure: Figure;
  what: string;
  unit: 'GB' | 'GiB' | 'ratio' | 'tokens/s' | 'ms' | 'bits' | 'steps';
  /** Null: the paper's text has no number. */
  paper: number | null;
  ours: number;
  /** True: the profile was fitted to this number, so that its match proves nothing. */
  calibrated: boolean;
}

/** An order of systems or points that the paper reports. */
export interface FigureOrder {
  figure: Figure;
  what: string;
  holds: boolean;
}

export interface FigureResult {
  cells: FigureCell[];
  orders: FigureOrder[];
}

/** Makes a cell; it was not fitted unless `calibrated` is set. */
export function cell(
  figure: Figure,
  what: string,
  unit: FigureCell['unit'],
  ours: number,
  paper: number | null = null,
  calibrated = false,
): FigureCell {
  return { figure, what, unit, paper, ours, calibrated };
}
