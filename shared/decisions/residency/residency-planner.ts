/**
 * Decides how many experts of each layer stay in device memory, plain or compressed, and how many are loaded anew each time (FluxMoE section
 * 4.3, Algorithm 2, equations 9 to 13; the three states are those of section 5). Pure: called from time to time with measured values.
 * - rho = computing / loading. Above 1 computing hides the loads, and experts give back memory. Below theta loads delay computing, and experts
 * take memory.
 * - Experts never take more memory than keys and values leave (equation 12). This is enforced last and always holds.
 * - A re-planning moves `expertsPerLayer` experts of each layer one state down or up. So no layer's loads change suddenly.
 * Beyond the paper: a layer gives back no memory if that would make the pass longer through the streaming window of two layers. So equal measurements
 * lead to a stable plan, and layers of unequal length cause no waits. A layer makes the move that costs the least time for the memory that it frees,
 * or gains the most time for the memory that it takes.
 */
import { assertInvariant } from '../../base/errors/assert-invariant.js';

/** theta: if rho is below it, loads delay computing. */
export const LEAST_RATIO = 0.9;

/** Sums of the same times in another order differ by less than this. */
const ROUNDING = 1e-9;
/** Passes that are computed to find the time of one. From the second pass on, all take the same time. */
const SETTLED_PASSES = 3;

/** Weight of the faster backend's loads, in comparison with those of the slower one. */
const TIE_SHARE = 1e-3;

/** States by device memory, the most first; an offloaded expert takes none. */
export const RESIDENCY_STATES = ['plain', 'compressed', 'offloaded'] as const;
export type ResidencyState = (typeof RESIDENCY_STATES)[number];

/** Experts of one layer in each state. */
export type LayerResidency = Readonly<Record<ResidencyState, number>>;

export interface ResidencyCosts {
  /** Device bytes of one expert. An offloaded one takes none outside the streaming window. */
  bytes: Readonly<Record<'plain' | 'compressed', number>>;
  /** Time in ms that one expert takes of its backend at each pass. The two backends work at the same time. */
  loadMs: Readonly<Record<'compressed' | 'offloaded', number>>;
}

export interface ResidencyRequest {
  layers: readonly LayerResidency[];
  costs: ResidencyCosts;
  /** tau_comp by layers: time of computing in ms, without waits for experts. */
  layerComputeMs: readonly number[];
  /** C_gpu: device bytes for resident experts and for keys and values together; C_kv: bytes of the keys and values. */
  deviceBytes: number;
  cacheBytes: number;
  /** Experts of a layer that change state at a time; 1 in the paper. */
  expertsPerLayer: number;
  /** False: no expert stays plain, as in the paper's prototype. */
  keepsPlain: boolean;
  /** False: experts are plain or offloaded. At least one of the two flags is true. */
  keepsCompressed: boolean;
}

export interface ResidencyPlan {
  layers: LayerResidency[];
  /** Value before the change. Infinity: nothing is loaded. */
  rho: number;
  /** 'forced': lowered, to leave enough memory for keys and values. */
  change: 'none' | 'lowered' | 'raised' | 'forced';
  /** C_exp: bytes of resident experts after the change. */
  expertBytes: number;
}

/** alpha: share of the experts that are in device memory, plain or compressed. */
export function residencyLevel(layers: readonly LayerResidency[]): number {
  const all = layers.reduce((sum, layer) => sum + layer.plain + layer.compressed + layer.offloaded, 0);
  const resident = layers.reduce((sum, layer) => sum + layer.plain + layer.compressed, 0);
  return all === 0 ? 1 : resident / all;
}

/** C_exp: bytes of resident experts. */
export function residentBytes(layers: readonly LayerResidency[], costs: ResidencyCosts): number {
  return layers.reduce((sum, layer) => sum + layerBytes(layer, costs), 0);
}

/** tau_load in ms: the sum over layers of the time of the slower backend (equations 9 and 10). */
export function residencyLoadMs(layers: readonly LayerResidency[], costs: ResidencyCosts): number {
  return layers.reduce((sum, layer) => sum + layerLoadMs(layer, costs), 0);
}

/** Algorithm 2: one re-planning. */
export function planResidency(request: ResidencyRequest): ResidencyPlan {
  checkRequest(request);
  const { costs } = request;
  const rho = ratio(sum(request.layerComputeMs), residencyLoadMs(request.layers, costs));
  let layers = [...request.layers];
  let change: ResidencyPlan['change'] = 'none';
  const adopt = (changed: LayerResidency[], name: ResidencyPlan['change']): void => {
    if (changed.every((layer, index) => isSame(layer, layers[index]))) return;
    layers = changed;
    change = name;
  };
  if (rho > 1) adopt(lowerLayers(layers, request), 'lowered');
  else if (rho < LEAST_RATIO) adopt(raiseLayers(layers, request), 'raised');
  const fitting = enforce(layers, request);
  adopt(fitting, 'forced');
  return { layers, rho, change, expertBytes: residentBytes(layers, costs) };
}

/**
 * Enforces equation 12 alone, between two plannings: layers take no more memory than keys and values leave. Null: they fit as they are. Experts
 * that cost the most time for the memory they free are moved last.
 */
export function fitResidency(
  request: Pick<ResidencyRequest, 'layers' | 'costs' | 'deviceBytes' | 'cacheBytes' | 'keepsCompressed'>,
): LayerResidency[] | null {
  const { layers, costs, deviceBytes, cacheBytes } = request;
  return residentBytes(layers, costs) <= deviceBytes - cacheBytes ? null : enforce(layers, request);
}

/** Moves this many experts of a layer one state down. Each is chosen by itself. */
export function lowerLayer(
  layer: LayerResidency,
  costs: ResidencyCosts,
  experts: number,
  keepsCompressed = true,
): LayerResidency {
  let lowered = layer;
  for (let moved = 0; moved < experts; moved += 1) lowered = lowerOne(lowered, costs, keepsCompressed) ?? lowered;
  return lowered;
}

/** Null: no expert of the layer is in device memory. */
function lowerOne(layer: LayerResidency, costs: ResidencyCosts, keepsCompressed: boolean): LayerResidency | null {
  const moves = [
    moved(layer, 'plain', keepsCompressed ? 'compressed' : 'offloaded'),
    moved(layer, 'compressed', 'offloaded'),
  ];
  return best(moves, (candidate) => {
    const freed = layerBytes(layer, costs) - layerBytes(candidate, costs);
    return -(layerLoadMs(candidate, costs) - layerLoadMs(layer, costs)) / freed;
  });
}

/** Lowers one layer after the other, unless computing would then wait. */
function lowerLayers(layers: readonly LayerResidency[], request: ResidencyRequest): LayerResidency[] {
  const { costs, layerComputeMs, expertsPerLayer, keepsCompressed } = request;
  const lowered = [...layers];
  const loadMs = layers.map((layer) => layerLoadMs(layer, costs));
  const mostMs = sum(layerComputeMs) * (1 + ROUNDING);
  for (const [index, layer] of layers.entries()) {
    const lower = lowerLayer(layer, costs, expertsPerLayer, keepsCompressed);
    const beforeMs = loadMs[index] ?? 0;
    loadMs[index] = layerLoadMs(lower, costs);
    if (windowPassMs(layerComputeMs, loadMs) <= mostMs) lowered[index] = lower;
    else loadMs[index] = beforeMs;
  }
  return lowered;
}

/**
 * Time in ms of a pass when passes follow each other. A layer is loaded after the one before it, once the layer two before it has been computed
 * (Algorithm 1). It is computed once it is loaded.
 */
export function windowPassMs(layerComputeMs: readonly number[], layerLoadsMs: readonly number[]): number {
  let [loaded, computed, computedBefore, passBegan] = [0, 0, 0, 0];
  for (let pass = 0; pass < SETTLED_PASSES; pass += 1) {
    passBegan = computed;
    for (const [layer, computeMs] of layerComputeMs.entries()) {
      loaded = Math.max(loaded, computedBefore) + (layerLoadsMs[layer] ?? 0);
      computedBefore = computed;
      computed = Math.max(computed, loaded) + computeMs;
    }
  }
  return computed - passBegan;
}

function raiseLayers(layers: readonly LayerResidency[], request: ResidencyRequest): LayerResidency[] {
  const { costs, deviceBytes, cacheBytes, expertsPerLayer } = request;
  const raised = [...layers];
  let bytes = residentBytes(layers, costs);
  for (let round = 0; round < expertsPerLayer; round += 1) {
    for (const [index, layer] of raised.entries()) {
      const higher = raiseOne(layer, request);
      if (higher === null) continue;
      const added = layerBytes(higher, costs) - layerBytes(layer, costs);
      if (bytes + added > deviceBytes - cacheBytes) continue;
      raised[index] = higher;
      bytes += added;
    }
  }
  return raised;
}

/**
 * Null: no move makes the layer's loads shorter. If both backends take equally long, no single move does; then the move that leaves the smaller
 * sum of loads is made.
 */
function raiseOne(
  layer: LayerResidency,
  { costs, keepsPlain, keepsCompressed }: ResidencyRequest,
): LayerResidency | null {
  const moves = keepsCompressed ? [moved(layer, 'offloaded', 'compressed')] : [];
  if (keepsPlain) moves.push(moved(layer, 'compressed', 'plain'), moved(layer, 'offloaded', 'plain'));
  const gainOf = (move: LayerResidency): number => layerLoadMs(layer, costs) - layerLoadMs(move, costs);
  const allGainOf = (move: LayerResidency): number => allLoadsMs(layer, costs) - allLoadsMs(move, costs);
  const useful = moves.map((move) => {
    if (move === null || gainOf(move) < 0) return null;
    return gainOf(move) > 0 || allGainOf(move) > 0 ? move : null;
  });
  return best(useful, (move) => {
    const taken = layerBytes(move, costs) - layerBytes(layer, costs);
    return (gainOf(move) + TIE_SHARE * allGainOf(move)) / taken;
  });
}

/** Enforces equation 12: in turn, each layer moves one expert a state down, until all fit or no expert is left to move. */
function enforce(
  layers: readonly LayerResidency[],
  {
    costs,
    deviceBytes,
    cacheBytes,
    keepsCompressed,
  }: Pick<ResidencyRequest, 'costs' | 'deviceBytes' | 'cacheBytes' | 'keepsCompressed'>,
): LayerResidency[] {
  const fitting = [...layers];
  let bytes = residentBytes(layers, costs);
  const roomBytes = Math.max(0, deviceBytes - cacheBytes);
  for (let gave = true; bytes > roomBytes && gave;) {
    gave = false;
    // The last layers are lowered first: the first ones have no layer before them that would hide their loads.
    for (let index = fitting.length - 1; index >= 0 && bytes > roomBytes; index -= 1) {
      const layer = fitting[index];
      const lower = layer === undefined ? null : lowerOne(layer, costs, keepsCompressed);
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

/** Time of the loads of both backends together, in ms. */
function allLoadsMs({ compressed, offloaded }: LayerResidency, { loadMs }: ResidencyCosts): number {
  return compressed * loadMs.compressed + offloaded * loadMs.offloaded;
}

function layerLoadMs({ compressed, offloaded }: LayerResidency, { loadMs }: ResidencyCosts): number {
  return Math.max(compressed * loadMs.compressed, offloaded * loadMs.offloaded);
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

function ratio(computeMs: number, loadMs: number): number {
  return loadMs === 0 ? Infinity : computeMs / loadMs;
}

function isSame(left: LayerResidency, right: LayerResidency | undefined): boolean {
  return RESIDENCY_STATES.every((state) => left[state] === right?.[state]);
}

function checkRequest({ layers, costs, layerComputeMs, expertsPerLayer, ...room }: ResidencyRequest): void {
  const { bytes, loadMs } = costs;
  const isCosted = bytes.plain > bytes.compressed && bytes.compressed > 0 && loadMs.compressed >= 0;
  assertInvariant(
    isCosted && loadMs.offloaded >= 0,
    'compressed experts take less than plain ones, and more than none.',
  );
  const isMeasured = layerComputeMs.length === layers.length && layerComputeMs.every((ms) => ms >= 0);
  const isBounded = room.deviceBytes >= 0 && room.cacheBytes >= 0 && Number.isSafeInteger(expertsPerLayer);
  assertInvariant(isMeasured && isBounded, 'what residency is planned from is measured, for each layer.');
}
