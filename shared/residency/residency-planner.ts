/**
 * How many experts of each layer stay in device memory, plain or compressed, and how many are fetched anew each time (FluxMoE section 4.3,
 * Algorithm 2, equations 9 to 13; the three states are those of section 5). Pure: called now and then with what was measured.
 *
 * - rho = computing / loading. Above 1 computing hides the loads, and memory is given back; below theta loads delay it, and memory is taken.
 * - What experts take never exceeds what keys and values leave (equation 12). That comes last and holds always.
 * - A re-planning moves `expertsPerLayer` experts of each layer one state down or up. So no layer's loads jump.
 *
 * Beyond the paper: a step that would land on the other side of [theta, 1] is not made, so that the same measurements lead to rest; and of the
 * possible moves of a layer the one is made that costs the least time for the memory it frees, or gains most for what it takes.
 */
import { assertInvariant } from '../errors/assert-invariant.js';

/** theta: rho below it means that loads delay computing. */
export const LEAST_RATIO = 0.9;
/** Passes between two re-plannings (section 6.3). */
export const REPLAN_PASSES = 300;

/** From what takes most device memory to what takes none. */
export const RESIDENCY_STATES = ['plain', 'compressed', 'offloaded'] as const;
export type ResidencyState = (typeof RESIDENCY_STATES)[number];

/** Experts of one layer in each state. */
export type LayerResidency = Readonly<Record<ResidencyState, number>>;

export interface ResidencyCosts {
  /** Device bytes of one expert. An offloaded one takes none beside the window. */
  bytes: Readonly<Record<'plain' | 'compressed', number>>;
  /** What one expert takes of its backend at each pass, ms. The two backends work at the same time. */
  loadMs: Readonly<Record<'compressed' | 'offloaded', number>>;
}

export interface ResidencyRequest {
  layers: readonly LayerResidency[];
  costs: ResidencyCosts;
  /** tau_comp: all layers of a pass, without waiting for experts, ms. */
  computeMs: number;
  /** C_gpu: device bytes for kept experts and for keys and values together; C_kv: what the latter take. */
  deviceBytes: number;
  cacheBytes: number;
  /** Experts of a layer that change at a time; 1 in the paper. */
  expertsPerLayer: number;
  /** False: nothing is kept plain, as in the paper's prototype. */
  keepsPlain: boolean;
}

export interface ResidencyPlan {
  layers: LayerResidency[];
  /** Before the change. Infinity: nothing is loaded. */
  rho: number;
  /** 'forced': down, to leave keys and values their memory. */
  change: 'none' | 'lowered' | 'raised' | 'forced';
  /** C_exp: what kept experts take now. */
  expertBytes: number;
}

/** alpha: share of the experts that are in device memory, plain or compressed. */
export function residencyLevel(layers: readonly LayerResidency[]): number {
  const all = layers.reduce((sum, layer) => sum + layer.plain + layer.compressed + layer.offloaded, 0);
  const resident = layers.reduce((sum, layer) => sum + layer.plain + layer.compressed, 0);
  return all === 0 ? 1 : resident / all;
}

/** C_exp, bytes. */
export function residentBytes(layers: readonly LayerResidency[], costs: ResidencyCosts): number {
  return layers.reduce((sum, layer) => sum + layerBytes(layer, costs), 0);
}

/** tau_load: the sum over layers of the time of the slower backend (equations 9 and 10), ms. */
export function residencyLoadMs(layers: readonly LayerResidency[], costs: ResidencyCosts): number {
  return layers.reduce((sum, layer) => sum + layerLoadMs(layer, costs), 0);
}

/** Algorithm 2. */
export function planResidency(request: ResidencyRequest): ResidencyPlan {
  checkRequest(request);
  const { costs, computeMs } = request;
  const loadMs = residencyLoadMs(request.layers, costs);
  const rho = ratio(computeMs, loadMs);
  let layers = [...request.layers];
  let change: ResidencyPlan['change'] = 'none';
  const adopt = (changed: LayerResidency[], name: ResidencyPlan['change']): void => {
    if (changed.every((layer, index) => isSame(layer, layers[index]))) return;
    layers = changed;
    change = name;
  };
  if (rho > 1) {
    const lowered = layers.map((layer) => lowerLayer(layer, costs, request.expertsPerLayer));
    // Lower than that, and loads would delay what they do not delay now.
    if (ratio(computeMs, residencyLoadMs(lowered, costs)) >= LEAST_RATIO) adopt(lowered, 'lowered');
  } else if (rho < LEAST_RATIO) adopt(raiseLayers(layers, request), 'raised');
  const fitting = enforce(layers, request);
  adopt(fitting, 'forced');
  return { layers, rho, change, expertBytes: residentBytes(layers, costs) };
}

/** A layer with this many experts one state down, chosen one by one. */
export function lowerLayer(layer: LayerResidency, costs: ResidencyCosts, experts: number): LayerResidency {
  let lowered = layer;
  for (let moved = 0; moved < experts; moved += 1) lowered = lowerOne(lowered, costs) ?? lowered;
  return lowered;
}

/** Null: nothing of the layer is in device memory. */
function lowerOne(layer: LayerResidency, costs: ResidencyCosts): LayerResidency | null {
  const moves = [moved(layer, 'plain', 'compressed'), moved(layer, 'compressed', 'offloaded')];
  return best(moves, (candidate) => {
    const freed = layerBytes(layer, costs) - layerBytes(candidate, costs);
    return -(layerLoadMs(candidate, costs) - layerLoadMs(layer, costs)) / freed;
  });
}

function raiseLayers(layers: readonly LayerResidency[], request: ResidencyRequest): LayerResidency[] {
  const { costs, deviceBytes, cacheBytes, expertsPerLayer } = request;
  const raised = [...layers];
  let bytes = residentBytes(layers, costs);
  for (let round = 0; round < expertsPerLayer; round += 1) {
    for (const [index, layer] of raised.entries()) {
      const higher = raiseOne(layer, costs, request.keepsPlain);
      if (higher === null) continue;
      const added = layerBytes(higher, costs) - layerBytes(layer, costs);
      if (bytes + added > deviceBytes - cacheBytes) continue;
      raised[index] = higher;
      bytes += added;
    }
  }
  return raised;
}

/** Null: no move makes the layer's loads shorter. */
function raiseOne(layer: LayerResidency, costs: ResidencyCosts, keepsPlain: boolean): LayerResidency | null {
  const moves = [moved(layer, 'offloaded', 'compressed')];
  if (keepsPlain) moves.push(moved(layer, 'compressed', 'plain'), moved(layer, 'offloaded', 'plain'));
  const shorter = moves.map((move) => {
    return move !== null && layerLoadMs(move, costs) < layerLoadMs(layer, costs) ? move : null;
  });
  return best(shorter, (candidate) => {
    const taken = layerBytes(candidate, costs) - layerBytes(layer, costs);
    return (layerLoadMs(layer, costs) - layerLoadMs(candidate, costs)) / taken;
  });
}

/** Equation 12: layers give one expert each in turn until all fit, or none is left. */
function enforce(layers: readonly LayerResidency[], request: ResidencyRequest): LayerResidency[] {
  const { costs, deviceBytes, cacheBytes } = request;
  const fitting = [...layers];
  let bytes = residentBytes(layers, costs);
  const roomBytes = Math.max(0, deviceBytes - cacheBytes);
  for (let gave = true; bytes > roomBytes && gave;) {
    gave = false;
    // The last layers first: the first ones have no layer before them to hide their loads behind.
    for (let index = fitting.length - 1; index >= 0 && bytes > roomBytes; index -= 1) {
      const layer = fitting[index];
      const lower = layer === undefined ? null : lowerOne(layer, costs);
      if (layer === undefined || lower === null) continue;
      bytes -= layerBytes(layer, costs) - layerBytes(lower, costs);
      fitting[index] = lower;
      gave = true;
    }
  }
  return fitting;
}

function moved(layer: LayerResidency, from: ResidencyState, to: ResidencyState): LayerResidency | null {
  return layer[from] === 0 ? null : { ...layer, [from]: layer[from] - 1, [to]: layer[to] + 1 };
}

function best(
  moves: readonly (LayerResidency | null)[],
  worth: (candidate: LayerResidency) => number,
): LayerResidency | null {
  let found: LayerResidency | null = null;
  for (const move of moves) if (move !== null && (found === null || worth(move) > worth(found))) found = move;
  return found;
}

function layerBytes({ plain, compressed }: LayerResidency, { bytes }: ResidencyCosts): number {
  return plain * bytes.plain + compressed * bytes.compressed;
}

function layerLoadMs({ compressed, offloaded }: LayerResidency, { loadMs }: ResidencyCosts): number {
  return Math.max(compressed * loadMs.compressed, offloaded * loadMs.offloaded);
}

function ratio(computeMs: number, loadMs: number): number {
  return loadMs === 0 ? Infinity : computeMs / loadMs;
}

function isSame(left: LayerResidency, right: LayerResidency | undefined): boolean {
  return RESIDENCY_STATES.every((state) => left[state] === right?.[state]);
}

function checkRequest({ costs, computeMs, expertsPerLayer, deviceBytes, cacheBytes }: ResidencyRequest): void {
  const { bytes, loadMs } = costs;
  const isCosted = bytes.plain > bytes.compressed && bytes.compressed > 0 && loadMs.compressed >= 0;
  assertInvariant(
    isCosted && loadMs.offloaded >= 0,
    'compressed experts take less than plain ones, and more than none.',
  );
  const isMeasured = computeMs >= 0 && deviceBytes >= 0 && cacheBytes >= 0 && Number.isSafeInteger(expertsPerLayer);
  assertInvariant(isMeasured, 'what residency is planned from is measured.');
}
