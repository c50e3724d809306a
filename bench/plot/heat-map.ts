import { round, svgText, type Drawing } from '../../shared/base/text/svg-drawing.js';

export interface PlottedHeatMap {
  title: string;
  xLabel: string;
  yLabel: string;
  columns: readonly string[];
  rows: readonly string[];
  /** Values by row and column; null: unknown. */
  values: readonly (readonly (number | null)[])[];
  /** Formats a value for its cell. */
  label: (value: number) => string;
}

const CELL = { width: 76, height: 34 };
const MARGIN = { left: 96, right: 12, top: 44, bottom: 52 };
/** Colours of the lowest and the highest value; text on the darker half is white. */
const LIGHTEST = [255, 255, 255] as const;
const DARKEST = [0, 78, 130] as const;

/** Draws the map: one box per value, darker for higher values. */
export function heatMap(map: PlottedHeatMap): Drawing {
  const width = MARGIN.left + map.columns.length * CELL.width + MARGIN.right;
  const height = MARGIN.top + map.rows.length * CELL.height + MARGIN.bottom;
  const known = map.values.flat().filter((value) => value !== null);
  const lowest = Math.min(...known);
  const range = Math.max(...known) - lowest;
  const shade = (value: number): number => (range > 0 ? (value - lowest) / range : 1);
  const middle = round(MARGIN.left + (map.columns.length * CELL.width) / 2);
  const half = round(MARGIN.top + (map.rows.length * CELL.height) / 2);
  const bottom = MARGIN.top + map.rows.length * CELL.height;
  const cells = map.values.flatMap((values, row) =>
    values.map((value, column) =>
      cell(row, column, value === null ? null : { shade: shade(value), words: map.label(value) }),
    ),
  );
  const body = [
    svgText(round(width / 2), 20, map.title, 'font-size="14" text-anchor="middle"'),
    ...cells,
    ...map.columns.map((name, column) => svgText(columnMiddle(column), bottom + 16, name, 'text-anchor="middle"')),
    ...map.rows.map((name, row) => svgText(MARGIN.left - 8, rowMiddle(row), name, 'text-anchor="end"')),
    svgText(middle, bottom + 36, map.xLabel, 'text-anchor="middle"'),
    svgText(16, half, map.yLabel, `text-anchor="middle" transform="rotate(-90 16 ${half})"`),
  ];
  return { width, height, body: body.join('\n') };
}

function cell(row: number, column: number, content: { shade: number; words: string } | null): string {
  const place = `x="${MARGIN.left + column * CELL.width}" y="${MARGIN.top + row * CELL.height}"`;
  const size = `width="${CELL.width}" height="${CELL.height}" stroke="#ffffff"`;
  if (content === null) return `<rect ${place} ${size} fill="#eeeeee"/>`;
  const ink = content.shade > 0.5 ? '#ffffff' : '#222222';
  const words = svgText(columnMiddle(column), rowMiddle(row), content.words, `text-anchor="middle" fill="${ink}"`);
  return `<rect ${place} ${size} fill="${colour(content.shade)}"/>${words}`;
}

function columnMiddle(column: number): number {
  return MARGIN.left + (column + 0.5) * CELL.width;
}

/** The y coordinate of text in the middle of a row. */
function rowMiddle(row: number): number {
  return MARGIN.top + (row + 0.5) * CELL.height + 4;
}

function colour(shade: number): string {
  const parts = LIGHTEST.map((light, index) => Math.round(light + shade * ((DARKEST[index] ?? 0) - light)));
  return `rgb(${parts.join(' ')})`;
}
