import type {
  ExpertTimeline,
  LayerTimeline,
  NodeRole,
  PassTimeline,
  PredictionOutcome,
  PredictionTimeline,
} from '../../shared/wire/cluster-events.js';
import { naturalOrder } from '../../shared/base/text/natural-order.js';
import { executeText, headText, loadText, mainText, predictionText, shadowText, stallText } from './bar-texts.js';

/** The kind of a bar in the diagram: work of main, of shadow, or of a worker. */
export type BarKind = 'attention' | 'wait' | 'sum' | 'head' | 'shadow' | 'load' | 'stall' | 'execute';

export interface Bar {
  kind: BarKind;
  /** -1: belongs to no layer. */
  layer: number;
  fromMs: number;
  toMs: number;
  /** Row within its lane, from 0. */
  row: number;
  /** A short text, shown if it fits. */
  label: string;
  /** The full description. */
  text: string;
  /** Set for loads and executions only. */
  foretold: PredictionOutcome | null;
  reloaded: boolean;
}

/** A prediction, at the time of its arrival at main. */
export interface PredictionMark {
  atMs: number;
  layer: number;
  text: string;
}

/** A message between main and a worker; lanes are given by index. */
export interface MessageArrow {
  fromLane: number;
  fromMs: number;
  toLane: number;
  toMs: number;
}

export interface Lane {
  name: string;
  role: NodeRole;
  rows: number;
  /** Ordered by their begin. */
  bars: Bar[];
  predictions: PredictionMark[];
}

/** The events of a pass by time and node: main, shadow, and each worker. Times are milliseconds from the begin of main's pass. */
export interface Timeline {
  beginMs: number;
  endMs: number;
  lanes: Lane[];
  arrows: MessageArrow[];
}

/** Main's lane is the first. */
const MAIN_LANE = 0;
/** Most rows of loads of one worker; if more overlap, some bars cover others. */
const MOST_LOAD_ROWS = 4;
/** Time before the pass that is shown, as a share of the pass's duration. Earlier events are cut off: shadow may be several tokens ahead. */
const SHOWN_BEFORE_SHARE = 1;

/** `workers`: the order of their lanes, including workers without work; workers that it does not name follow. */
export function timelineOf(pass: PassTimeline, workers: readonly string[]): Timeline {
  const busy = pass.layers.flatMap(({ experts }) => experts.map(({ worker }) => worker));
  const names = [...new Set([...workers, ...[...new Set(busy)].sort(naturalOrder)])];
  const shadow = pass.predictions.length > 0 ? [shadowLane(pass.predictions)] : [];
  const lanes = [mainLane(pass), ...shadow, ...names.map((name) => workerLane(name, pass.layers))];
  const { beginMs, endMs } = extent(pass, lanes);
  const laneOf = new Map(lanes.map(({ name, role }, index) => [role === 'worker' ? name : '', index]));
  return { beginMs, endMs, lanes, arrows: pass.layers.flatMap((layer) => arrowsOf(layer, laneOf)) };
}

function extent({ durationMs }: PassTimeline, lanes: readonly Lane[]): { beginMs: number; endMs: number } {
  let first = 0;
  let last = durationMs;
  for (const { bars, predictions } of lanes) {
    for (const { fromMs, toMs } of bars) {
      first = Math.min(first, fromMs);
      last = Math.max(last, toMs);
    }
    for (const { atMs } of predictions) first = Math.min(first, atMs);
  }
  return { beginMs: Math.max(first, -durationMs * SHOWN_BEFORE_SHARE), endMs: last };
}

function bar(kind: BarKind, layer: number, fromMs: number, toMs: number, rest: Partial<Bar>): Bar {
  const label = layer < 0 ? '' : String(layer);
  return { kind, layer, fromMs, toMs, row: 0, label, text: '', foretold: null, reloaded: false, ...rest };
}

function mainLane({ layers, durationMs }: PassTimeline): Lane {
  const bars = layers.flatMap((layer) => [
    bar('attention', layer.layer, layer.beginMs, layer.routedMs, { text: mainText('attention', layer) }),
    bar('wait', layer.layer, layer.routedMs, layer.answeredMs, { label: '', text: mainText('wait', layer) }),
    bar('sum', layer.layer, layer.answeredMs, layer.endMs, { label: '', text: mainText('sum', layer) }),
  ]);
  const endMs = layers.at(-1)?.endMs ?? 0;
  const text = headText(durationMs - endMs);
  const head = durationMs > endMs ? [bar('head', -1, endMs, durationMs, { label: 'H', text })] : [];
  return { name: 'main', role: 'main', rows: 1, bars: [...bars.filter(isNoMoment), ...head], predictions: [] };
}

function isNoMoment({ fromMs, toMs }: Bar): boolean {
  return toMs > fromMs;
}

/** Sequences that shadow ran together form one bar. A bar ends when the prediction reached main, so it includes the message's way. */
function shadowLane(predictions: readonly PredictionTimeline[]): Lane {
  const together = new Map<string, PredictionTimeline[]>();
  const runs = new Map<number, number>();
  for (const prediction of predictions) {
    const key = `${prediction.layer} ${prediction.runMs}`;
    together.set(key, [...(together.get(key) ?? []), prediction]);
  }
  const bars: Bar[] = [];
  const marks: PredictionMark[] = [];
  for (const [first, ...others] of [...together.values()].sort(byArrival)) {
    if (first === undefined) continue;
    const all = [first, ...others];
    const before = runs.get(first.sequence) ?? 0;
    const tookMs = first.runMs > before ? first.runMs - before : first.runMs;
    for (const { sequence } of all) runs.set(sequence, first.runMs);
    const atMs = Math.max(...all.map(({ receivedMs }) => receivedMs));
    bars.push(bar('shadow', first.layer, atMs - tookMs, atMs, { text: shadowText(first.layer, tookMs, all.length) }));
    marks.push({ atMs, layer: first.layer, text: predictionText(all) });
  }
  return { name: 'shadow', role: 'shadow', rows: 1, bars: bars.filter(isNoMoment), predictions: marks };
}

function byArrival(left: readonly PredictionTimeline[], right: readonly PredictionTimeline[]): number {
  return (left[0]?.receivedMs ?? 0) - (right[0]?.receivedMs ?? 0);
}

function workerLane(name: string, layers: readonly LayerTimeline[]): Lane {
  const tasks = layers.map((layer) => ({ layer, experts: layer.experts.filter(({ worker }) => worker === name) }));
  const loads = tasks
    .flatMap(({ layer, experts }) => experts.flatMap((expert) => loadBars(layer, expert)))
    .sort((left, right) => left.fromMs - right.fromMs);
  const loadRows = giveRows(loads);
  const work = tasks.flatMap(({ layer, experts }) => workBars(layer, experts, loadRows));
  const bars = [...loads, ...work].sort((left, right) => left.fromMs - right.fromMs);
  return { name, role: 'worker', rows: loadRows + 1, bars, predictions: [] };
}

function loadBars({ layer }: LayerTimeline, expert: ExpertTimeline): Bar[] {
  const { loadBeginMs, loadEndMs, foretold, reloaded } = expert;
  if (loadBeginMs === null || loadEndMs === null || loadEndMs <= loadBeginMs) return [];
  const text = loadText(layer, expert, loadEndMs - loadBeginMs);
  return [bar('load', layer, loadBeginMs, loadEndMs, { label: String(expert.expert), text, foretold, reloaded })];
}

/** Puts overlapping loads into separate rows. Returns the number of rows, at least one. */
function giveRows(loads: readonly Bar[]): number {
  const ends: number[] = [];
  for (const load of loads) {
    const free = ends.findIndex((endMs) => endMs <= load.fromMs + 1e-6);
    const row = free >= 0 ? free : ends.length < MOST_LOAD_ROWS ? ends.length : ends.indexOf(Math.min(...ends));
    load.row = row;
    ends[row] = Math.max(ends[row] ?? 0, load.toMs);
  }
  return Math.max(1, ends.length);
}

/** Bars for a worker's computation, and for its stalls: it has main's message and waits for a load. */
function workBars({ layer }: LayerTimeline, experts: readonly ExpertTimeline[], row: number): Bar[] {
  const bars: Bar[] = [];
  let idleMs = Math.min(...experts.map(({ arrivedMs }) => arrivedMs));
  for (const expert of [...experts].sort((left, right) => left.executeBeginMs - right.executeBeginMs)) {
    const { executeBeginMs, executeEndMs, loadEndMs, foretold, reloaded } = expert;
    const loadedMs = Math.min(loadEndMs ?? idleMs, executeBeginMs);
    const waitText = stallText(layer, expert, loadedMs - idleMs);
    if (loadedMs > idleMs) bars.push(bar('stall', layer, idleMs, loadedMs, { row, label: '', text: waitText }));
    const text = executeText(layer, expert);
    const label = String(expert.expert);
    bars.push(bar('execute', layer, executeBeginMs, executeEndMs, { row, label, text, foretold, reloaded }));
    idleMs = Math.max(idleMs, executeEndMs);
  }
  return bars.filter(isNoMoment);
}

/** Two arrows for each worker of the layer: one to the worker and one back. */
function arrowsOf({ experts }: LayerTimeline, laneOf: ReadonlyMap<string, number>): MessageArrow[] {
  const byWorker = new Map<string, ExpertTimeline[]>();
  for (const expert of experts) byWorker.set(expert.worker, [...(byWorker.get(expert.worker) ?? []), expert]);
  return [...byWorker].flatMap(([worker, tasks]) => {
    const lane = laneOf.get(worker);
    const first = tasks.reduce((least, task) => (task.sentMs < least.sentMs ? task : least));
    const last = tasks.reduce((most, task) => (task.receivedMs > most.receivedMs ? task : most));
    if (lane === undefined) return [];
    return [
      { fromLane: MAIN_LANE, fromMs: first.sentMs, toLane: lane, toMs: first.arrivedMs },
      { fromLane: lane, fromMs: last.executeEndMs, toLane: MAIN_LANE, toMs: last.receivedMs },
    ];
  });
}
