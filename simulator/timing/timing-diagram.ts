import { escaped, line, round, svgFile, svgText, ticks } from '../../shared/base/text/svg-drawing.js';
import type { Operation, OperationKind } from './operation-log.js';

/** The part of a log that a diagram shows: operations between two times, by lane. */
export interface DiagramWindow {
  title: string;
  beginMs: number;
  endMs: number;
  /** First and last position of the pass of the diagram: operations of other passes are pale. Null: none are pale. */
  positions: { first: number; last: number } | null;
}

const LANE_HEIGHT = 26;
const BAR_HEIGHT = 18;
const LABEL_WIDTH = 84;
const STRIP_WIDTH = 1500;
const MARGIN = { right: 16, top: 8, bottom: 34 };
const HEADER_HEIGHT = 34;
const LEGEND_HEIGHT = 30;
/** Smallest width of a bar that shows its name. */
const NAMED_BAR_PIXELS = 30;
const MOST_STRIPS = 8;
/** Most lanes; further workers are left out, and the diagram states that. */
const MOST_LANES = 40;

/** Colours that colour-blind readers can tell apart, too (Okabe and Ito). */
const COLOURS: Record<OperationKind, string> = {
  M: '#56b4e9',
  S: '#e69f00',
  EL: '#cc79a7',
  EC: '#009e73',
  head: '#0072b2',
  message: '#222222',
  fault: '#d55e00',
};
const LEGEND: readonly [OperationKind, string][] = [
  ['M', 'M: main, attention and router'],
  ['head', 'H: main, LM head'],
  ['S', 'S: shadow'],
  ['EL', 'EL: loading an expert'],
  ['EC', 'EC: computing an expert'],
  ['message', 'on the network'],
  ['fault', 'a fault'],
];

/**
 * The timing diagram of a pass as SVG text, after OD-MoE figure 2: one lane per node, bars for its operations, each named with its layer (from
 * 1). Time continues from strip to strip.
 */
export function timingDiagram(
  operations: readonly Operation[],
  lanes: readonly string[],
  window: DiagramWindow,
): string {
  const shown = operations.filter((operation) => operation.toMs > window.beginMs && operation.fromMs < window.endMs);
  const lanesShown = lanes.slice(0, MOST_LANES);
  const leftOut = lanes.length - lanesShown.length;
  const stripMs = stripDuration(shown, window);
  const strips = Math.max(1, Math.ceil((window.endMs - window.beginMs) / stripMs - 1e-9));
  const height = MARGIN.top + lanesShown.length * LANE_HEIGHT + MARGIN.bottom;
  const width = LABEL_WIDTH + STRIP_WIDTH + MARGIN.right;
  const title = leftOut === 0 ? window.title : `${window.title}, ${leftOut} more workers not shown`;
  const header = { width, height: HEADER_HEIGHT, body: svgText(8, 22, title, 'font-size="15"') };
  const drawn = Array.from({ length: strips }, (_, strip) => {
    const beginMs = window.beginMs + strip * stripMs;
    return { width, height, body: stripSvg(shown, lanesShown, { beginMs, stripMs }, window) };
  });
  return svgFile([header, ...drawn, { width, height: LEGEND_HEIGHT, body: legendSvg() }]);
}

/** Duration of a strip: short enough that main's and the workers' bars have room for their names, within the limit on strips. */
function stripDuration(operations: readonly Operation[], { beginMs, endMs }: DiagramWindow): number {
  const medians = (['M', 'EC'] as const).map((kind) => {
    const lengths = operations
      .filter((operation) => operation.kind === kind)
      .map((operation) => operation.toMs - operation.fromMs);
    return lengths.sort((left, right) => left - right)[Math.floor(lengths.length / 2)] ?? endMs - beginMs;
  });
  const wanted = (Math.min(...medians) * STRIP_WIDTH) / NAMED_BAR_PIXELS;
  return Math.min(endMs - beginMs, Math.max(wanted, (endMs - beginMs) / MOST_STRIPS));
}

interface Strip {
  beginMs: number;
  stripMs: number;
}

function stripSvg(
  operations: readonly Operation[],
  lanes: readonly string[],
  strip: Strip,
  window: DiagramWindow,
): string {
  const endMs = strip.beginMs + strip.stripMs;
  const toX = (ms: number): number => {
    const inside = Math.min(Math.max(ms, strip.beginMs), endMs);
    return round(LABEL_WIDTH + ((inside - strip.beginMs) / strip.stripMs) * STRIP_WIDTH);
  };
  const bottom = MARGIN.top + lanes.length * LANE_HEIGHT;
  const body = operations
    .filter((operation) => operation.toMs > strip.beginMs && operation.fromMs < endMs && lanes.includes(operation.node))
    // Messages are thin and must lie above the bars.
    .sort((left, right) => Number(left.kind === 'message') - Number(right.kind === 'message'))
    .map((operation) => operationSvg(operation, toX, MARGIN.top + lanes.indexOf(operation.node) * LANE_HEIGHT, window));
  const names = lanes.map((lane, index) => {
    const y = MARGIN.top + index * LANE_HEIGHT;
    const rule = line(LABEL_WIDTH, y + LANE_HEIGHT, LABEL_WIDTH + STRIP_WIDTH, y + LANE_HEIGHT, '#e0e0e0');
    return rule + svgText(LABEL_WIDTH - 8, y + 17, lane, 'text-anchor="end" font-size="12"');
  });
  return [...names, ...body, axisSvg(strip, window, toX, bottom)].join('\n');
}

function axisSvg(strip: Strip, window: DiagramWindow, toX: (ms: number) => number, bottom: number): string {
  const sinceBeginMs = strip.beginMs - window.beginMs;
  const times = ticks(strip.stripMs);
  const stepMs = (times[1] ?? 1) / 2;
  const first = Math.ceil(sinceBeginMs / stepMs - 1e-9);
  const last = Math.floor((sinceBeginMs + strip.stripMs) / stepMs + 1e-9);
  const marks = Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => (first + index) * stepMs);
  return [
    line(LABEL_WIDTH, bottom, LABEL_WIDTH + STRIP_WIDTH, bottom, '#222222'),
    ...marks.map((ms) => {
      const x = toX(window.beginMs + ms);
      const label = svgText(x, bottom + 17, `${Number(ms.toPrecision(6))} ms`, 'text-anchor="middle" font-size="11"');
      return line(x, bottom, x, bottom + 5, '#222222') + label;
    }),
  ].join('\n');
}

function operationSvg(
  operation: Operation,
  toX: (ms: number) => number,
  laneTop: number,
  window: DiagramWindow,
): string {
  const x = toX(operation.fromMs);
  const width = Math.max(0.6, round(toX(operation.toMs) - x));
  const own = isOwn(operation, window);
  const opacity = own ? '' : ' opacity="0.35"';
  const colour = COLOURS[operation.kind];
  if (operation.kind === 'message') {
    return `<rect x="${x}" y="${laneTop + LANE_HEIGHT - 5}" width="${width}" height="3" fill="${colour}"${opacity}/>`;
  }
  const y = laneTop + (LANE_HEIGHT - BAR_HEIGHT) / 2 - 2;
  const dashes = operation.givenUp
    ? ' stroke="#222222" stroke-dasharray="3 2"'
    : ' stroke="#ffffff" stroke-width="0.6"';
  const bar = `<rect x="${x}" y="${y}" width="${width}" height="${BAR_HEIGHT}" fill="${colour}"${dashes}${opacity}>${hint(operation)}</rect>`;
  return width < NAMED_BAR_PIXELS - 2 ? bar : bar + nameSvg(operation, round(x + width / 2), y + 13);
}

function isOwn({ position }: Operation, { positions }: DiagramWindow): boolean {
  return positions === null || (position >= positions.first && position <= positions.last);
}

function nameSvg({ kind, layer, label }: Operation, x: number, y: number): string {
  const letters = kind === 'head' ? 'H' : kind === 'fault' ? label : kind;
  const below = layer < 0 ? '' : `<tspan dy="2.5" font-size="8">${layer + 1}</tspan>`;
  return `<text x="${x}" y="${y}" text-anchor="middle" font-size="11">${escaped(letters)}${below}</text>`;
}

/** The hint that a browser shows under the pointer. */
function hint({ label, fromMs, toMs, givenUp }: Operation): string {
  return `<title>${escaped(label)}: ${round(toMs - fromMs)} ms${givenUp ? ', given up' : ''}</title>`;
}

function legendSvg(): string {
  let x = LABEL_WIDTH;
  return LEGEND.map(([kind, words]) => {
    const mark =
      kind === 'message'
        ? `<rect x="${x}" y="12" width="16" height="3" fill="${COLOURS[kind]}"/>`
        : `<rect x="${x}" y="6" width="16" height="14" fill="${COLOURS[kind]}"/>`;
    const label = svgText(x + 22, 18, words, 'font-size="12"');
    x += 22 + words.length * 6.6 + 24;
    return mark + label;
  }).join('\n');
}
