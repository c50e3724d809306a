import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { NOTHING } from '../format/quantities.js';
import { resolvedColour, useThemeCount } from '../elements/resolved-colour.js';

export interface ChartLine {
  title: string;
  /** The name of a colour in colours.css. */
  colour: string;
  values: readonly (number | null)[];
}

export interface LineChartProps {
  title: string;
  /** Ascending. */
  xs: readonly number[];
  xRange: [number, number];
  /** The text of an x value in the head, and at the axis. */
  formatX: (x: number) => string;
  formatTick: (x: number) => string;
  /** Possible distances between ticks of the axis. */
  tickSteps: number[];
  lines: readonly ChartLine[];
  format: (value: number) => string;
  /** Values in the head while no cursor is in the chart, one per line; null: not measured. */
  latest: readonly (number | null)[];
  /** Charts of one group show their cursors at the same x. */
  group: string;
  /** True: single measurements, drawn as points without a line. */
  hasPoints?: boolean;
  /** True: whole numbers, drawn as steps from one second to the next. */
  hasSteps?: boolean;
  /** True: values are shares, so that the scale's top is never above 1. */
  isShare?: boolean;
}

const HEIGHT = 150;
/** A scale of shares does not begin at 0 but near the least value, so that 96 % and 98 % look different. */
const SHARE_STEP = 0.05;

function yRange({ isShare = false }: LineChartProps, low: number | null, high: number | null): [number, number] {
  if (!isShare) return [0, high === null || high <= 0 ? 1 : high * 1.1];
  if (low === null) return [0, 1];
  const from = Math.floor(low / SHARE_STEP - 0.2) * SHARE_STEP;
  return [Math.max(0, from), 1];
}

function axis(colours: { quiet: string; line: string }): uPlot.Axis {
  return {
    stroke: colours.quiet,
    font: '11px system-ui, sans-serif',
    grid: { stroke: colours.line, width: 1 },
    ticks: { show: false },
  };
}

/** True: the tick is at the left edge, where its text would touch that of the other axis. */
function isNearEdge(x: number, [from, to]: [number, number]): boolean {
  return x - from < 0.06 * (to - from);
}

function chartOptions(props: LineChartProps, width: number, onCursor: (index: number | null) => void): uPlot.Options {
  const colours = { quiet: resolvedColour('text-quiet'), line: resolvedColour('line') };
  const surface = resolvedColour('surface');
  return {
    width,
    height: HEIGHT,
    padding: [8, 20, 0, 0],
    legend: { show: false },
    cursor: {
      y: false,
      drag: { x: false, y: false },
      points: { size: 8, width: 2, fill: surface },
      sync: { key: props.group, setSeries: false, scales: ['x', null] },
    },
    scales: {
      x: { time: false, range: () => props.xRange },
      y: { range: (_, low, high) => yRange(props, low, high) },
    },
    axes: [
      {
        ...axis(colours),
        size: 20,
        gap: 4,
        space: 64,
        incrs: props.tickSteps,
        values: (_, splits) => splits.map((x) => (isNearEdge(x, props.xRange) ? null : props.formatTick(x))),
      },
      { ...axis(colours), size: 52, gap: 6, space: 34, values: (_, splits) => splits.map(props.format) },
    ],
    series: [{}, ...props.lines.map((line) => seriesOf(props, line))],
    hooks: { setCursor: [({ cursor: { idx } }) => onCursor(idx ?? null)] },
  };
}

function seriesOf({ hasPoints = false, hasSteps = false, lines }: LineChartProps, { colour }: ChartLine): uPlot.Series {
  const stroke = resolvedColour(colour);
  const isAlone = lines.length === 1 && !hasPoints;
  return {
    stroke,
    width: hasPoints ? 0 : 1.5,
    points: { show: hasPoints, size: 5, width: 0, fill: stroke },
    ...(hasSteps && uPlot.paths.stepped ? { paths: uPlot.paths.stepped({ align: -1 }) } : {}),
    ...(isAlone ? { fill: resolvedColour('accent-soft') } : {}),
  };
}

function dataOf({ xs, lines }: LineChartProps): uPlot.AlignedData {
  return [[...xs], ...lines.map(({ values }) => [...values])];
}

/** A chart with a head that shows the values at the cursor, or else the latest ones. */
export function LineChart(props: LineChartProps): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const current = useRef(props);
  const [cursor, setCursor] = useState<number | null>(null);
  const themeCount = useThemeCount();
  current.current = props;

  useEffect(() => {
    const target = place.current;
    if (target === null) return;
    const live = liveProps(current);
    const made = new uPlot(chartOptions(live, target.clientWidth, setCursor), dataOf(live), target);
    const sizes = new ResizeObserver(() => made.setSize({ width: target.clientWidth, height: HEIGHT }));
    sizes.observe(target);
    chart.current = made;
    return () => {
      sizes.disconnect();
      made.destroy();
      chart.current = null;
    };
  }, [themeCount]);

  useEffect(() => chart.current?.setData(dataOf(props)), [props.xs, props.lines]);

  return (
    <figure class="card chart" aria-label={sentenceOf(props)}>
      <ChartHead props={props} cursor={cursor} />
      <div class="chart-place" ref={place} aria-hidden="true">
        {props.latest.every((value) => value === null) && <p class="chart-empty quiet small">Nothing measured yet</p>}
      </div>
    </figure>
  );
}

/** Options that the chart reads later: its range moves with the samples, so `xRange` must always be the present one. */
function liveProps(current: { current: LineChartProps }): LineChartProps {
  return {
    ...current.current,
    get xRange() {
      return current.current.xRange;
    },
  };
}

function sentenceOf({ title, lines, latest, format }: LineChartProps): string {
  const values = lines.map((line, index) => {
    const value = latest[index] ?? null;
    return `${line.title} ${value === null ? 'not measured' : format(value)}`;
  });
  return lines.length === 1
    ? `${title}: ${values.join('').replace(`${title} `, '')}`
    : `${title}: ${values.join(', ')}`;
}

function ChartHead({ props, cursor }: { props: LineChartProps; cursor: number | null }): JSX.Element {
  const { title, lines, latest, format, xs, formatX } = props;
  const x = cursor === null ? undefined : xs[cursor];
  return (
    <figcaption class="chart-head">
      <h2>{title}</h2>
      <p class="chart-values number">
        {x !== undefined && <span class="quiet small">{formatX(x)}</span>}
        {lines.map((line, index) => {
          const value = x === undefined ? latest[index] : line.values[cursor ?? 0];
          return (
            <span key={line.title}>
              {lines.length > 1 && <span class={`swatch line-${line.colour}`} />}
              {lines.length > 1 && <span class="quiet small">{line.title} </span>}
              {value === null || value === undefined ? NOTHING : format(value)}
            </span>
          );
        })}
      </p>
    </figcaption>
  );
}
