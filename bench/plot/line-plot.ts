import { line, round, svgFile, svgText, ticks, type Drawing } from '../../shared/base/text/svg-drawing.js';

/** Line plots with several panels in rows. */

export interface PlotSeries {
  name: string;
  /** Ordered by x. */
  points: readonly { x: number; y: number }[];
}

export interface PlotPanel {
  title: string;
  series: readonly PlotSeries[];
}

export interface LinePlot {
  title: string;
  xLabel: string;
  yLabel: string;
  /** Rows of panels; series with one name have the same colour in all panels. */
  rows: readonly (readonly PlotPanel[])[];
  /** Draws a dot at each point; false if there are too many points. */
  dots?: boolean;
}

const PANEL_WIDTH = 260;
const PANEL_HEIGHT = 200;
const MARGIN = { left: 52, right: 12, top: 30, bottom: 40 };
const HEADER = 34;
const LEGEND = 28;
/** Colours that people with colour blindness can distinguish, too (Okabe and Ito); dashes help without colours. */
const COLOURS = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#555555', '#e69f00', '#56b4e9', '#7f3b08'];
const DASHES = ['', '6 3', '2 3', '8 3 2 3', '1 2', '10 4', '4 4', '12 3 2 3'];

/** The plot as the text of an SVG file. */
export function linePlotSvg(plot: LinePlot): string {
  return svgFile([linePlot(plot)]);
}

/** The plot as a drawing, for a file with several drawings. */
export function linePlot(plot: LinePlot): Drawing {
  const columns = Math.max(1, ...plot.rows.map((row) => row.length));
  const width = columns * PANEL_WIDTH;
  const height = HEADER + plot.rows.length * PANEL_HEIGHT + LEGEND;
  const names = [...new Set(plot.rows.flat().flatMap(({ series }) => series.map(({ name }) => name)))];
  const panels = plot.rows.flatMap((row, rowIndex) =>
    row.map((panel, column) => {
      const place = `translate(${column * PANEL_WIDTH} ${HEADER + rowIndex * PANEL_HEIGHT})`;
      return `<g transform="${place}">${panelSvg(panel, plot, names)}</g>`;
    }),
  );
  const body = [
    svgText(width / 2, 20, plot.title, 'font-size="14" text-anchor="middle"'),
    ...panels,
    legendSvg(names, width, height - LEGEND / 2),
  ];
  return { width, height, body: body.join('\n') };
}

function panelSvg(panel: PlotPanel, plot: LinePlot, names: readonly string[]): string {
  const points = panel.series.flatMap(({ points: each }) => each);
  const xTicks = ticks(Math.max(0, ...points.map(({ x }) => x)));
  const yTicks = ticks(Math.max(0, ...points.map(({ y }) => y)));
  const xEnd = xTicks.at(-1) ?? 1;
  const yEnd = yTicks.at(-1) ?? 1;
  const innerWidth = PANEL_WIDTH - MARGIN.left - MARGIN.right;
  const innerHeight = PANEL_HEIGHT - MARGIN.top - MARGIN.bottom;
  const toX = (x: number): number => round(MARGIN.left + (x / xEnd) * innerWidth);
  const toY = (y: number): number => round(MARGIN.top + innerHeight - (y / yEnd) * innerHeight);
  const bottom = toY(0);
  const grid = [
    ...yTicks.map((y) => line(toX(0), toY(y), toX(xEnd), toY(y), '#e0e0e0')),
    ...yTicks.map((y) => svgText(toX(0) - 5, toY(y) + 4, label(y), 'text-anchor="end"')),
    ...xTicks.map((x) => svgText(toX(x), bottom + 14, label(x), 'text-anchor="middle"')),
    line(toX(0), bottom, toX(xEnd), bottom, '#222222'),
    line(toX(0), toY(0), toX(0), toY(yEnd), '#222222'),
  ];
  const middle = MARGIN.top + innerHeight / 2;
  const words = [
    svgText(MARGIN.left + innerWidth / 2, MARGIN.top - 10, panel.title, 'text-anchor="middle" font-size="12"'),
    svgText(MARGIN.left + innerWidth / 2, bottom + 30, plot.xLabel, 'text-anchor="middle"'),
    svgText(14, middle, plot.yLabel, `text-anchor="middle" transform="rotate(-90 14 ${middle})"`),
  ];
  const curves = panel.series.map((series) => {
    const path = series.points.map(({ x, y }) => `${toX(x)},${toY(y)}`).join(' ');
    const dots = (plot.dots === false ? [] : series.points).map(
      ({ x, y }) => `<circle cx="${toX(x)}" cy="${toY(y)}" r="2.5" fill="${colour(names, series.name)}"/>`,
    );
    return `<polyline points="${path}" fill="none" ${stroke(names, series.name)}/>${dots.join('')}`;
  });
  return [...grid, ...words, ...curves].join('\n');
}

function legendSvg(names: readonly string[], width: number, y: number): string {
  const step = width / Math.max(1, names.length);
  return names
    .map((name, index) => {
      const x = round(index * step + step / 2 - 40);
      const sample = `<line x1="${x}" y1="${y}" x2="${x + 26}" y2="${y}" ${stroke(names, name)}/>`;
      return sample + svgText(x + 32, y + 4, name, '');
    })
    .join('\n');
}

function colour(names: readonly string[], name: string): string {
  return COLOURS[names.indexOf(name) % COLOURS.length] ?? '#000000';
}

function stroke(names: readonly string[], name: string): string {
  const dash = DASHES[names.indexOf(name) % DASHES.length] ?? '';
  return `stroke="${colour(names, name)}" stroke-width="1.8"${dash === '' ? '' : ` stroke-dasharray="${dash}"`}`;
}

function label(value: number): string {
  return String(Number(value.toPrecision(6)));
}
