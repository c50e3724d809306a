import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { countKept, hasKept, keep, keptBytes } from '../../shared/decisions/placement/kept-experts.js';

/** A main that runs experts itself beside workers (main.experts: both, strict homes), and how often its routers choose each expert. */
export interface OwnExpertsInput {
  layers: number;
  experts: number;
  /** Probability, 0 to 1, that a token uses the expert: layers x experts. */
  uses: ArrayLike<number>;
  /** Most experts that main's memory holds, over all layers. */
  room: number;
  /** Workers beside main's own one; at least 1. They count as alike. */
  workers: number;
  /** Experts that their caches hold together; Infinity: all. */
  workersRoom: number;
  /** Time of main's own worker, and of another one, to execute an expert. */
  ownMs: number;
  workerMs: number;
  /** Time in which another worker loads an expert that it does not cache. */
  loadMs: number;
  /** Time that a message to a worker and its answer take beside the execution. */
  reachMs: number;
}

/** Expected messages of main, and expected time, for the experts of a token. */
export interface ExpertsCost {
  messages: number;
  ms: number;
}

/** An expert that main keeps counts as used so much more than it is, so that two experts used alike do not change places for ever. */
export const KEPT_COUNTS_MORE = 1.25;

/**
 * The experts that main is to keep, as a bitmap (PlacedWorker.kept_experts): those that most tokens use, within main's memory, so that the fewest
 * messages to workers remain. A layer keeps fewer if main would become the one that all wait for. As long as there is memory, main keeps at least one
 * expert: its speed is not measured without executions. `kept`: those that main keeps now; null: it keeps none by choice. Pure.
 */
export function chooseOwnExperts(input: OwnExpertsInput, kept: Uint8Array | null): Uint8Array {
  const { layers, experts, room } = input;
  const ranked = Array.from({ length: layers }, (_, layer) => rankExperts(input, layer, kept));
  const most = mostOfLayers(ranked, experts, Math.max(0, Math.floor(room)));
  const chosen = new Uint8Array(keptBytes(input));
  const loadMs = expectedLoadMs(input, layers * experts - Math.min(layers * experts, Math.max(0, Math.floor(room))));
  ranked.forEach((ofLayer, layer) => {
    for (const expert of cheapestOf(input, ofLayer, most[layer] ?? 0, loadMs)) keep(chosen, experts, layer, expert);
  });
  if (most.some((count) => count > 0) && countKept(chosen) === 0) keepLeastUsed(chosen, ranked, experts);
  return chosen;
}

/** A layer's experts, those of the greatest value first. All lists are in this order. Main looks while it answers, so lists are of numbers. */
interface RankedLayer {
  /** Indexes of the experts. */
  order: Uint32Array;
  uses: Float64Array;
  /** The uses; those of experts that are kept count more. */
  values: Float64Array;
}

function rankExperts({ experts, uses }: OwnExpertsInput, layer: number, kept: Uint8Array | null): RankedLayer {
  const useOf = (expert: number): number => boundedUse(uses[layer * experts + expert]);
  const values = Float64Array.from({ length: experts }, (_, expert) =>
    kept !== null && hasKept(kept, experts, layer, expert) ? useOf(expert) * KEPT_COUNTS_MORE : useOf(expert),
  );
  const valueOf = (expert: number): number => values[expert] ?? 0;
  const order = Uint32Array.from({ length: experts }, (_, expert) => expert);
  order.sort((left, right) => valueOf(right) - valueOf(left) || left - right);
  return { order, uses: Float64Array.from(order, useOf), values: Float64Array.from(order, valueOf) };
}

/** The number of experts of each layer for which there is room, if those of the greatest value over all layers are kept. */
function mostOfLayers(ranked: readonly RankedLayer[], experts: number, room: number): number[] {
  const values = new Float64Array(ranked.length * experts);
  ranked.forEach((ofLayer, layer) => values.set(ofLayer.values, layer * experts));
  values.sort();
  // The value of the first expert for which there is no room.
  const least = values[values.length - 1 - room] ?? -Infinity;
  const most = ranked.map((ofLayer) => countAbove(ofLayer.values, least));
  let left = room - most.reduce((sum, count) => sum + count, 0);
  // If all are used alike, each layer gets as many.
  for (let rank = 0; rank < experts && left > 0; rank += 1)
    for (let layer = 0; layer < ranked.length && left > 0; layer += 1) {
      if (ranked[layer]?.values[rank] !== least) continue;
      most[layer] = (most[layer] ?? 0) + 1;
      left -= 1;
    }
  return most;
}

/** The number of values above this one; the values fall. */
function countAbove(values: Float64Array, least: number): number {
  const count = values.findIndex((value) => value <= least);
  return count < 0 ? values.length : count;
}

/** Each expert costs time on a main that is so slow. The least used one of all layers costs the least, and is enough to measure main. */
function keepLeastUsed(chosen: Uint8Array, ranked: readonly RankedLayer[], experts: number): void {
  let least = { layer: 0, expert: 0, use: Infinity };
  ranked.forEach(({ order, uses }, layer) => {
    uses.forEach((use, rank) => {
      if (use < least.use) least = { layer, expert: order[rank] ?? 0, use };
    });
  });
  keep(chosen, experts, least.layer, least.expert);
}

/**
 * The first of a layer's experts, 0 to `most`, with which the layer takes the least time; of equal numbers the greatest. If the first one alone makes
 * the layer slower: the next one that does not.
 */
function cheapestOf(input: OwnExpertsInput, { order, uses }: RankedLayer, most: number, loadMs: number): Uint32Array {
  let last: LayerUse = { own: 0, executed: 0, idle: 1 };
  const theirs = [last];
  for (let rank = uses.length - 1; rank >= 0; rank -= 1) theirs.push((last = withTheirs(last, uses[rank] ?? 0, input)));
  const noneMs = layerCost(input, last, loadMs).ms;
  let own = 0;
  let best = { count: 0, ms: Infinity };
  for (let count = 0; count <= most; count += 1) {
    const rest = requirePresent(theirs[uses.length - count], 'there is a sum for each number of experts.');
    rest.own = own;
    const { ms } = layerCost(input, rest, loadMs);
    if (ms <= best.ms) best = { count, ms };
    own += uses[count] ?? 0;
  }
  if (best.count > 0 || most === 0) return order.subarray(0, best.count);
  const fitting = uses.findIndex((use) => use * input.ownMs <= noneMs);
  return fitting < 0 ? order.subarray(0, 0) : order.subarray(fitting, fitting + 1);
}

/** Expected messages and time of a token's experts if main keeps these (a bitmap as above), and workers have the others. Pure. */
export function ownExpertsCost(input: OwnExpertsInput, kept: Uint8Array): ExpertsCost {
  const { layers, experts, uses, workers } = input;
  const loadMs = expectedLoadMs(input, layers * experts - countKept(kept));
  const sum = { messages: 0, ms: 0 };
  for (let layer = 0; layer < layers; layer += 1) {
    const used: LayerUse = { own: 0, executed: 0, idle: 1 };
    for (let expert = 0; expert < experts; expert += 1) {
      const use = boundedUse(uses[layer * experts + expert]);
      if (hasKept(kept, experts, layer, expert)) used.own += use;
      else {
        used.executed += use;
        used.idle *= 1 - use / workers;
      }
    }
    const { messages, ms } = layerCost(input, used, loadMs);
    sum.messages += messages;
    sum.ms += ms;
  }
  return sum;
}

/** Expected time to load an expert that one of the workers executes, if they have so many. */
function expectedLoadMs({ workersRoom, loadMs }: OwnExpertsInput, theirs: number): number {
  return theirs <= workersRoom ? 0 : loadMs * (1 - workersRoom / theirs);
}

/** A layer's experts by where they run. Each of the workers' experts is at any of them with the same probability; choices count as independent. */
interface LayerUse {
  /** Expected executions of a token on main, and on the workers. */
  own: number;
  executed: number;
  /** Probability that one of the workers is asked for none. */
  idle: number;
}

function withTheirs(used: LayerUse, use: number, { workers }: OwnExpertsInput): LayerUse {
  return { own: used.own, executed: used.executed + use, idle: used.idle * (1 - use / workers) };
}

/** Main and the workers run a layer's experts side by side. Main sends one worker after the other its message. */
function layerCost(
  { workers, ownMs, workerMs, reachMs }: OwnExpertsInput,
  { own, executed, idle }: LayerUse,
  loadMs: number,
): ExpertsCost {
  const messages = workers * (1 - idle);
  const theirMs = messages * reachMs + (executed / workers) * (workerMs + loadMs);
  return { messages, ms: Math.max(own * ownMs, theirMs) };
}

function boundedUse(use: number | undefined): number {
  return Math.min(1, Math.max(0, use ?? 0));
}
