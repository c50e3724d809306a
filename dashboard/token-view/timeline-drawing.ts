import { round } from '../../shared/base/text/svg-drawing.js';
import type { Bar, PredictionMark, Timeline } from './timeline.js';

/** Height of a row of bars, and the free space above and below a lane's rows. */
const ROW_PIXELS = 18;
const LANE_GAP_PIXELS = 5;
export const AXIS_PIXELS = 26;
/** Least width of a bar: narrower neighbours in one row are merged into one bar. */
const LEAST_BAR_PIXELS = 1;
const LETTER_PIXELS = 6.2;
const TICK_PIXELS = 84;
/** Mean width per arrow below which no arrow is drawn, because dense arrows would hide the bars. */
const ARROW_PIXELS = 16;

/** Maps time to pixels: `beginMs` is at 0. */
export interface Scale {
  beginMs: number;
  pixelsPerMs: number;
}

/** The visible pixels of the diagram; the rest is not drawn. */
export interface VisiblePixels {
  from: number;
  to: number;
}

export interface PlacedBar {
  bar: Bar;
  x: number;
  y: number;
  width: number;
  height: number;
  /** Empty: there is no room for it. */
  label: string;
}

export interface PlacedLane {
  name: string;
  y: number;
  height: number;
}

export interface PlacedMark {
  mark: PredictionMark;
  x: number;
  y: number;
}

export interface TimelineDrawing {
  height: number;
  lanes: PlacedLane[];
  bars: PlacedBar[];
  marks: PlacedMark[];
  arrows: { x1: number; y1: number; x2: number; y2: number }[];
  /** Ticks of the axis; the text is a number of milliseconds. */
  ticks: { x: number; text: string }[];
}

/** Converts the timeline to pixels. Only the part within `visible` is drawn, at any zoom. */
export function drawTimeline(timeline: Timeline, scale: Scale, visible: VisiblePixels): TimelineDrawing {
  const lanes = placeLanes(timeline);
  const height = lanesHeight(lanes);
  const toX = (ms: number): number => round((ms - scale.beginMs) * scale.pixelsPerMs);
  const bounds = { from: Math.max(0, visible.from), to: Math.min(toX(timeline.endMs), visible.to) };
  const isVisible = (from: number, to: number): boolean => to >= bounds.from && from <= bounds.to;
  const bars = timeline.lanes.flatMap((lane, index) => {
    const laneTop = (lanes[index]?.y ?? 0) + LANE_GAP_PIXELS;
    const placed = lane.bars
      .filter(({ fromMs, toMs }) => isVisible(toX(fromMs), toX(toMs)))
      .map((bar) => placeBar(bar, toX, laneTop));
    return mergeNarrow(placed);
  });
  const marks = timeline.lanes.flatMap((lane, index) =>
    lane.predictions
      .map((mark) => ({ mark, x: toX(mark.atMs), y: (lanes[index]?.y ?? 0) + LANE_GAP_PIXELS + ROW_PIXELS }))
      .filter(({ x }) => isVisible(x, x)),
  );
  const arrows = timeline.arrows
    .map(({ fromLane, fromMs, toLane, toMs }) => ({
      x1: toX(fromMs),
      y1: laneEdge(lanes, fromLane, toLane),
      x2: toX(toMs),
      y2: laneEdge(lanes, toLane, fromLane),
    }))
    .filter(({ x1, x2 }) => isVisible(x1, x2));
  const arrowsFit = arrows.length * ARROW_PIXELS <= bounds.to - bounds.from;
  return {
    height: height + AXIS_PIXELS,
    lanes,
    bars,
    marks,
    arrows: arrowsFit ? arrows : [],
    ticks: placeTicks(scale, bounds, toX),
  };
}

function placeLanes({ lanes }: Timeline): PlacedLane[] {
  let y = 0;
  return lanes.map(({ name, rows }) => {
    const lane = { name, y, height: rows * ROW_PIXELS + 2 * LANE_GAP_PIXELS };
    y += lane.height;
    return lane;
  });
}

function lanesHeight(lanes: readonly PlacedLane[]): number {
  return lanes.reduce((sum, { height }) => sum + height, 0);
}

/** The edge of the lane that is nearer to the other lane. */
function laneEdge(lanes: readonly PlacedLane[], index: number, other: number): number {
  const lane = lanes[index];
  if (lane === undefined) return 0;
  return index < other ? lane.y + lane.height - LANE_GAP_PIXELS : lane.y + lane.height - LANE_GAP_PIXELS - ROW_PIXELS;
}

function placeBar(bar: Bar, toX: (ms: number) => number, laneTop: number): PlacedBar {
  const x = toX(bar.fromMs);
  const width = Math.max(LEAST_BAR_PIXELS, round(toX(bar.toMs) - x));
  const label = bar.label.length * LETTER_PIXELS + 4 <= width ? bar.label : '';
  return { bar, x, y: laneTop + bar.row * ROW_PIXELS, width, height: ROW_PIXELS - 2, label };
}

/** Merges bars of one lane, ordered by their begin: bars of one kind and outcome that are too narrow to be seen apart become one. */
function mergeNarrow(bars: readonly PlacedBar[]): PlacedBar[] {
  const merged: PlacedBar[] = [];
  const latest = new Map<number, PlacedBar>();
  for (const placed of bars) {
    const before = latest.get(placed.y);
    if (before !== undefined && isSameDust(before, placed)) {
      before.width = round(Math.max(before.width, placed.x + placed.width - before.x));
    } else {
      const own = { ...placed };
      merged.push(own);
      latest.set(placed.y, own);
    }
  }
  return merged;
}

function isSameDust(before: PlacedBar, next: PlacedBar): boolean {
  if (next.width > LEAST_BAR_PIXELS || next.x > before.x + before.width) return false;
  return (
    before.bar.kind === next.bar.kind &&
    before.bar.foretold === next.bar.foretold &&
    before.bar.reloaded === next.bar.reloaded
  );
}

function placeTicks(
  { beginMs, pixelsPerMs }: Scale,
  visible: VisiblePixels,
  toX: (ms: number) => number,
): { x: number; text: string }[] {
  const stepMs = roundStep(TICK_PIXELS / pixelsPerMs);
  const first = Math.ceil((beginMs + visible.from / pixelsPerMs) / stepMs - 1e-9);
  const last = Math.floor((beginMs + visible.to / pixelsPerMs) / stepMs + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => {
    const ms = (first + index) * stepMs;
    return { x: toX(ms), text: `${Number(ms.toPrecision(6))} ms` };
  });
}

/** The smallest of 1, 2, 5, 10, 20, ... (and 0.5, 0.2, ...) that is at least `least`. */
export function roundStep(least: number): number {
  let magnitude = 1;
  while (magnitude > least) magnitude /= 10;
  while (magnitude * 10 <= least) magnitude *= 10;
  const factor = [1, 2, 5, 10].find((candidate) => candidate * magnitude >= least * (1 - 1e-9)) ?? 10;
  return factor * magnitude;
}

/** Width in pixels of the whole extent. Bars and arrows reach beyond the pass where shadow was ahead. */
export function drawingWidth({ beginMs, endMs }: { beginMs: number; endMs: number }, pixelsPerMs: number): number {
  return Math.ceil((endMs - beginMs) * pixelsPerMs);
}
