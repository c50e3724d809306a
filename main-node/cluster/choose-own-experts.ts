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
  const most = mostOfLayers(ranked, Math.max(0, Math.floor(room)));
  const chosen = new Uint8Array(keptBytes(input));
  const loadMs = expectedLoadMs(input, layers * experts - Math.min(layers * experts, Math.max(0, Math.floor(room))));
  ranked.forEach((ofLayer, layer) => {
    for (const { expert } of cheapestOf(input, ofLayer, most[layer] ?? 0, loadMs)) keep(chosen, experts, layer, expert);
  });
  if (most.some((count) => count > 0) && countKept(chosen) === 0) keepLeastUsed(chosen, ranked, experts);
  return chosen;
}

/** The number of experts of each layer for which there is room, if those of the greatest value over all layers are kept. */
function mostOfLayers(ranked: readonly (readonly RankedExpert[])[], room: number): number[] {
  const all = ranked.flatMap((ofLayer, layer) => ofLayer.map(({ value }, rank) => ({ layer, rank, value })));
  // If all are used alike, each layer gets as many.
  all.sort((left, right) => right.value - left.value || left.rank - right.rank || left.layer - right.layer);
  const most = new Array<number>(ranked.length).fill(0);
  for (const { layer } of all.slice(0, room)) most[layer] = (most[layer] ?? 0) + 1;
  return most;
}

/** Each expert costs time on a main that is so slow. The least used one of all layers costs the least, and is enough to measure main. */
function keepLeastUsed(chosen: Uint8Array, ranked: readonly (readonly RankedExpert[])[], experts: number): void {
  const all = ranked.flatMap((ofLayer, layer) => ofLayer.map(({ expert, use }) => ({ layer, expert, use })));
  const [first, ...others] = all;
  if (first === undefined) return;
  const least = others.reduce((best, one) => (one.use < best.use ? one : best), first);
  keep(chosen, experts, least.layer, least.expert);
}

interface RankedExpert {
  expert: number;
  use: number;
  /** The use, or more for an expert that is kept. */
  value: number;
}

function rankExperts({ experts, uses }: OwnExpertsInput, layer: number, kept: Uint8Array | null): RankedExpert[] {
  const ranked = Array.from({ length: experts }, (_, expert) => {
    const use = boundedUse(uses[layer * experts + expert]);
    const isKept = kept !== null && hasKept(kept, experts, layer, expert);
    return { expert, use, value: isKept ? use * KEPT_COUNTS_MORE : use };
  });
  return ranked.sort((left, right) => right.value - left.value || left.expert - right.expert);
}

/**
 * The first of a layer's experts, 0 to `most`, with which the layer takes the least time; of equal numbers the greatest. If the first one alone makes
 * the layer slower: the next one that does not.
 */
function cheapestOf(
  input: OwnExpertsInput,
  ranked: readonly RankedExpert[],
  most: number,
  loadMs: number,
): readonly RankedExpert[] {
  let last: LayerUse = { own: 0, executed: 0, idle: 1 };
  const theirs = [last];
  for (const { use } of [...ranked].reverse()) theirs.push((last = withTheirs(last, use, input)));
  const noneMs = layerCost(input, last, loadMs).ms;
  let own = 0;
  let best = { count: 0, ms: Infinity };
  for (let count = 0; count <= most; count += 1) {
    const rest = requirePresent(theirs[ranked.length - count], 'there is a sum for each number of experts.');
    const { ms } = layerCost(input, { ...rest, own }, loadMs);
    if (ms <= best.ms) best = { count, ms };
    own += ranked[count]?.use ?? 0;
  }
  if (best.count > 0 || most === 0) return ranked.slice(0, best.count);
  const fitting = ranked.find(({ use }) => use * input.ownMs <= noneMs);
  return fitting === undefined ? [] : [fitting];
}

/** Expected messages and time of a token's experts if main keeps these (a bitmap as above), and workers have the others. Pure. */
export function ownExpertsCost(input: OwnExpertsInput, kept: Uint8Array): ExpertsCost {
  const { layers, experts, uses } = input;
  const loadMs = expectedLoadMs(input, layers * experts - countKept(kept));
  const sum = { messages: 0, ms: 0 };
  for (let layer = 0; layer < layers; layer += 1) {
    let used: LayerUse = { own: 0, executed: 0, idle: 1 };
    for (let expert = 0; expert < experts; expert += 1) {
      const use = boundedUse(uses[layer * experts + expert]);
      used = hasKept(kept, experts, layer, expert) ? { ...used, own: used.own + use } : withTheirs(used, use, input);
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
