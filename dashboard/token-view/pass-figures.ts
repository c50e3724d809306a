import type { ExpertTimeline, LayerTimeline, PassTimeline } from '../../shared/wire/cluster-events.js';

/** The parts of a layer's time, in milliseconds: `waitMs` = `stallMs` + `executeMs` + `otherMs`. */
export interface LayerFigures {
  attentionMs: number;
  /** From the router's choice until all outputs have arrived. */
  waitMs: number;
  /** Part of the wait: the last worker to answer had main's message, but its experts were still loading. */
  stallMs: number;
  /** Part of the wait: that worker computed. */
  executeMs: number;
  /** Part of the wait: messages, and work of earlier layers. */
  otherMs: number;
  /** Time to sum the outputs. */
  sumMs: number;
}

export interface PassFigures {
  layers: LayerFigures[];
  total: LayerFigures;
  durationMs: number;
  /** Time after the last layer. */
  headMs: number;
  rows: number;
  experts: number;
  loads: number;
  reloads: number;
  /** Experts that were predicted in time, as a share of the experts of layers with predictions; null: no layer had predictions. */
  recall: number | null;
}

const NOTHING: LayerFigures = { attentionMs: 0, waitMs: 0, stallMs: 0, executeMs: 0, otherMs: 0, sumMs: 0 };
export const FIGURE_NAMES = ['attentionMs', 'waitMs', 'stallMs', 'executeMs', 'otherMs', 'sumMs'] as const;

export function passFigures(pass: PassTimeline): PassFigures {
  const layers = pass.layers.map(layerFigures);
  const experts = pass.layers.flatMap((layer) => layer.experts);
  const predictable = experts.filter((expert) => expert.foretold !== 'announced' && expert.foretold !== 'unpredicted');
  const right = predictable.filter((expert) => expert.foretold === 'predicted').length;
  return {
    layers,
    total: layers.reduce(sumOf, NOTHING),
    durationMs: pass.durationMs,
    headMs: Math.max(0, pass.durationMs - (pass.layers.at(-1)?.endMs ?? 0)),
    rows: pass.members.reduce((sum, { rows }) => sum + rows, 0),
    experts: experts.length,
    loads: experts.filter(({ loadBeginMs }) => loadBeginMs !== null).length,
    reloads: experts.filter(({ reloaded }) => reloaded).length,
    recall: predictable.length === 0 ? null : right / predictable.length,
  };
}

/** Stall and computation are those of the worker that answered last, because main waited for it. */
function layerFigures({ beginMs, routedMs, answeredMs, endMs, experts }: LayerTimeline): LayerFigures {
  const waitMs = Math.max(0, answeredMs - routedMs);
  const last = experts.reduce<ExpertTimeline | null>(
    (latest, expert) => (latest === null || expert.receivedMs > latest.receivedMs ? expert : latest),
    null,
  );
  const tasks = experts.filter(({ worker }) => worker === last?.worker);
  const executeMs = Math.min(
    waitMs,
    sum(tasks.map(({ executeBeginMs, executeEndMs }) => executeEndMs - executeBeginMs)),
  );
  const stallMs = Math.min(waitMs - executeMs, stallOf(tasks));
  const otherMs = Math.max(0, waitMs - executeMs - stallMs);
  return { attentionMs: routedMs - beginMs, waitMs, stallMs, executeMs, otherMs, sumMs: endMs - answeredMs };
}

/** Time in which a worker had main's message and only loaded. */
function stallOf(tasks: readonly ExpertTimeline[]): number {
  let idleMs = Math.min(...tasks.map(({ arrivedMs }) => arrivedMs));
  let stallMs = 0;
  for (const task of [...tasks].sort((left, right) => left.executeBeginMs - right.executeBeginMs)) {
    const loadedMs = Math.min(task.loadEndMs ?? idleMs, task.executeBeginMs);
    stallMs += Math.max(0, loadedMs - idleMs);
    idleMs = Math.max(idleMs, task.executeEndMs);
  }
  return stallMs;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + Math.max(0, value), 0);
}

function sumOf(left: LayerFigures, right: LayerFigures): LayerFigures {
  return combined(left, right, (one, other) => one + other);
}

function combined(
  left: LayerFigures,
  right: LayerFigures,
  combine: (left: number, right: number) => number,
): LayerFigures {
  const entries = FIGURE_NAMES.map((name) => [name, combine(left[name], right[name])] as const);
  return { ...NOTHING, ...Object.fromEntries(entries) };
}

export interface FigureDifference {
  /** Null: all layers together. */
  layer: number | null;
  first: LayerFigures;
  second: LayerFigures;
  /** The second minus the first. */
  difference: LayerFigures;
}

/** All layers together come first. A layer that only one of the passes has counts as zero in the other. */
export function figureDifferences(first: PassFigures, second: PassFigures): FigureDifference[] {
  const difference = (layer: number | null, one: LayerFigures, other: LayerFigures): FigureDifference => {
    return { layer, first: one, second: other, difference: combined(one, other, (before, after) => after - before) };
  };
  const count = Math.max(first.layers.length, second.layers.length);
  const layers = Array.from({ length: count }, (_, index) =>
    difference(index, first.layers[index] ?? NOTHING, second.layers[index] ?? NOTHING),
  );
  return [difference(null, first.total, second.total), ...layers];
}
