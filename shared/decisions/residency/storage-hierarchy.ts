/**
 * Divides the experts of a layer among storage places, so that all places together load them fastest (FluxMoE section 4.2). A *backend* is one
 * place: compressed device memory, pinned host memory, storage, or the LAN's peers. Backends work at the same time. Pure.
 */
import { assertInvariant } from '../../base/errors/assert-invariant.js';
import { OdmoeError } from '../../base/errors/odmoe-error.js';

export const BACKEND_KINDS = ['compressed', 'host', 'storage', 'peers'] as const;
export type BackendKind = (typeof BACKEND_KINDS)[number];

export interface Backend {
  kind: BackendKind;
  /** B_k: plain bytes that the backend delivers a second, as measured. */
  bytesPerS: number;
  /** Most plain bytes of one layer in this backend; Infinity: no bound. */
  capacityBytes: number;
}

/** The division of a layer's bytes. */
export interface LayerDivision {
  /** Plain bytes from each backend, in the order of the backends. Their sum is the layer's size. */
  bytes: number[];
  /** Time in ms until the slowest backend has delivered its part (equation 9). */
  loadMs: number;
}

const MS_PER_S = 1000;

/**
 * Divides a layer in proportion to the bandwidths, so that all backends end together (equations 6 to 8). A backend whose capacity is less than
 * its part is filled, and the others share the rest in the same way. `layerBytes`: plain bytes of all experts of a layer (equation 5 by layers).
 * @throws DEVICE_OUT_OF_MEMORY if all capacities together do not hold the layer
 */
export function divideLayer(layerBytes: number, backends: readonly Backend[]): LayerDivision {
  checkBackends(layerBytes, backends);
  const bytes = backends.map(() => 0);
  let open = backends.map((_, index) => index);
  let leftBytes = layerBytes;
  while (leftBytes > 0) {
    const bandwidth = open.reduce((sum, index) => sum + bandwidthOf(backends, index), 0);
    const partOf = (index: number): number => (leftBytes * bandwidthOf(backends, index)) / bandwidth;
    const full = open.filter((index) => capacityOf(backends, index) <= partOf(index));
    if (full.length === 0) {
      for (const index of open) bytes[index] = partOf(index);
      break;
    }
    for (const index of full) {
      bytes[index] = Math.min(capacityOf(backends, index), leftBytes);
      leftBytes -= bytes[index] ?? 0;
    }
    open = open.filter((index) => !full.includes(index));
    if (open.length === 0) break;
  }
  return { bytes, loadMs: loadMsOf(bytes, backends) };
}

/** tau of a layer in ms: the time of its slowest backend (equations 6 and 9). */
export function loadMsOf(bytes: readonly number[], backends: readonly Backend[]): number {
  return bytes.reduce((slowest, ofBackend, index) => {
    return ofBackend === 0 ? slowest : Math.max(slowest, (ofBackend / bandwidthOf(backends, index)) * MS_PER_S);
  }, 0);
}

/**
 * Gives each tensor of a layer to one backend: the one that would deliver it first, among those with room. Longer tensors choose first. If no
 * capacity binds, the slowest backend then ends at most one tensor of each backend later than divideLayer says. Returns the backend's index for
 * each tensor. `tensorBytes`: plain bytes.
 * @throws DEVICE_OUT_OF_MEMORY if a tensor fits nowhere
 */
export function placeTensors(tensorBytes: readonly number[], backends: readonly Backend[]): number[] {
  const placed = tensorBytes.map(() => 0);
  const taken = backends.map(() => 0);
  const longestFirst = tensorBytes.map((_, index) => index);
  longestFirst.sort((left, right) => (tensorBytes[right] ?? 0) - (tensorBytes[left] ?? 0) || left - right);
  for (const tensor of longestFirst) {
    const bytes = tensorBytes[tensor] ?? 0;
    let best = -1;
    let bestEnd = Infinity;
    for (const [index, { bytesPerS, capacityBytes }] of backends.entries()) {
      const wanted = (taken[index] ?? 0) + bytes;
      if (wanted > capacityBytes || wanted / bytesPerS >= bestEnd) continue;
      best = index;
      bestEnd = wanted / bytesPerS;
    }
    if (best === -1) throw noRoom(bytes, backends);
    placed[tensor] = best;
    taken[best] = (taken[best] ?? 0) + bytes;
  }
  return placed;
}

/**
 * Places whole layers (the paper's FluxMoE-H) and returns the backend of each. The first layers go to backend 0; the last layers, a `lastShare`
 * of all, go to backend 1.
 */
export function placeWholeLayers(layers: number, lastShare: number): number[] {
  const last = Math.round(layers * lastShare);
  return Array.from({ length: layers }, (_, layer) => (layer < layers - last ? 0 : 1));
}

function bandwidthOf(backends: readonly Backend[], index: number): number {
  return backends[index]?.bytesPerS ?? 0;
}

function capacityOf(backends: readonly Backend[], index: number): number {
  return backends[index]?.capacityBytes ?? 0;
}

function checkBackends(layerBytes: number, backends: readonly Backend[]): void {
  assertInvariant(layerBytes >= 0 && layerBytes < Infinity, () => `a layer has ${layerBytes} bytes.`);
  for (const { kind, bytesPerS, capacityBytes } of backends) {
    assertInvariant(bytesPerS > 0 && capacityBytes >= 0, () => `the backend ${kind} has a bandwidth and a capacity.`);
  }
  const capacity = backends.reduce((sum, backend) => sum + backend.capacityBytes, 0);
  if (capacity < layerBytes) throw noRoom(layerBytes, backends);
}

function noRoom(bytes: number, backends: readonly Backend[]): OdmoeError {
  const capacities = backends.map(({ kind, capacityBytes }) => `${kind} ${capacityBytes}`).join(', ');
  return new OdmoeError(
    'DEVICE_OUT_OF_MEMORY',
    `Experts of ${bytes} bytes of a layer have no room in ${capacities} bytes: give one of these places more memory.`,
  );
}
