/** Chooses the experts that a worker holds in host memory, and the bytes that they may take. Pure. */
import { divideLayer } from '../../shared/decisions/residency/storage-hierarchy.js';

/** An expert that could be held in host memory. */
export interface HoldCandidate {
  layer: number;
  expert: number;
  /** Host memory that it takes. */
  bytes: number;
  /** Activations on record. */
  activations: number;
  /** The device's cache has the whole expert: its stored bytes are needed only after the cache has dropped it. */
  isCached: boolean;
  /** It is in host memory now. */
  isHeld: boolean;
}

/** Weight of a cached expert's activations: it is loaded again only after the cache has dropped it. */
const CACHED_SHARE = 0.25;
/** An expert replaces a held one only if it is used this many times as often, because a fill costs a whole read. */
const REPLACEMENT_FACTOR = 1.25;

/**
 * The experts to hold in `budgetBytes`, the most useful first: the most used ones, and among equals those of the first layers. If its own
 * choice is held and it plans again, it makes the same choice.
 */
export function planHeldExperts(candidates: readonly HoldCandidate[], budgetBytes: number): HoldCandidate[] {
  const ordered = candidates
    .map((candidate) => ({ candidate, use: expectedUse(candidate) }))
    .sort((left, right) => right.use - left.use || inOrder(left.candidate, right.candidate));
  const chosen: HoldCandidate[] = [];
  let freeBytes = budgetBytes;
  for (const { candidate } of ordered) {
    if (candidate.bytes > freeBytes) continue;
    freeBytes -= candidate.bytes;
    chosen.push(candidate);
  }
  return chosen;
}

/** Stored bytes per second that loads get; null: not measured. */
export interface LoadRates {
  hostBytesPerS: number | null;
  storageBytesPerS: number | null;
}

/** A held expert stays while its layer holds at most this many times its part: measured rates always vary a little. */
const PART_TOLERANCE = 1.15;

/**
 * The experts to hold when the rest of each layer is read from storage at the same time (FluxMoE section 4.2, equations 6 to 8). Host memory
 * holds a part of a layer's loads in proportion to its bandwidth, so that both sources finish together; it holds at most the layer's share of
 * `budgetBytes`. In each layer the most used experts come first. Experts that are whole in the device's cache are not loaded: they stay held if
 * the share has room, and are not filled in.
 */
export function planDividedExperts(
  candidates: readonly HoldCandidate[],
  budgetBytes: number,
  rates: LoadRates,
): HoldCandidate[] {
  const layers = [...new Set(candidates.map(({ layer }) => layer))];
  const shareBytes = budgetBytes / Math.max(1, layers.length);
  const chosen = layers.flatMap((layer) => {
    const ofLayer = candidates.filter((candidate) => candidate.layer === layer);
    return divideHeld(ofLayer, shareBytes, rates).map((candidate, rank) => ({ candidate, rank }));
  });
  chosen.sort((left, right) => left.rank - right.rank || inOrder(left.candidate, right.candidate));
  return chosen.map(({ candidate }) => candidate);
}

function divideHeld(ofLayer: readonly HoldCandidate[], shareBytes: number, rates: LoadRates): HoldCandidate[] {
  const loaded = ofLayer.filter(({ isCached }) => !isCached);
  const partBytes = hostPart(
    loaded.reduce((sum, { bytes }) => sum + bytes, 0),
    shareBytes,
    rates,
  );
  const mostBytes = Math.min(shareBytes, partBytes * PART_TOLERANCE);
  const byUse = (left: HoldCandidate, right: HoldCandidate): number =>
    expectedUse(right) - expectedUse(left) || inOrder(left, right);
  let takenBytes = 0;
  const fits = ({ bytes }: HoldCandidate, limitBytes: number): boolean => {
    if (takenBytes + bytes > limitBytes) return false;
    takenBytes += bytes;
    return true;
  };
  const part = loaded.sort(byUse).filter((candidate) => fits(candidate, candidate.isHeld ? mostBytes : partBytes));
  const staying = ofLayer.filter((candidate) => candidate.isCached && candidate.isHeld).sort(byUse);
  return [...part, ...staying.filter((candidate) => fits(candidate, shareBytes))];
}

/** Bytes of a layer that host memory should hold. Until both rates have been measured, host memory holds all that its share allows. */
function hostPart(layerBytes: number, shareBytes: number, { hostBytesPerS, storageBytesPerS }: LoadRates): number {
  if (hostBytesPerS === null || storageBytesPerS === null) return Math.min(layerBytes, shareBytes);
  const { bytes } = divideLayer(layerBytes, [
    { kind: 'host', bytesPerS: hostBytesPerS, capacityBytes: shareBytes },
    { kind: 'storage', bytesPerS: storageBytesPerS, capacityBytes: Infinity },
  ]);
  return bytes[0] ?? 0;
}

/** One more than the recorded activations, so that held experts stay when nothing is recorded. */
function expectedUse({ activations, isCached, isHeld }: HoldCandidate): number {
  return (activations + 1) * (isCached ? CACHED_SHARE : 1) * (isHeld ? REPLACEMENT_FACTOR : 1);
}

function inOrder(left: HoldCandidate, right: HoldCandidate): number {
  return left.layer - right.layer || left.expert - right.expert;
}

/** A reading of the host's memory. */
export interface HostMemoryReading {
  /** Bytes that a process could take now without pushing other processes out. */
  freeBytes: number;
  /** Bytes that held experts take now. */
  heldBytes: number;
}

/** `auto` leaves the host this many bytes, and at least this share of the memory that would be free without held experts. */
export const AUTOMATIC_MARGIN_BYTES = 1024 ** 3;
const AUTOMATIC_MARGIN_SHARE = 0.25;
/** With less free memory than this, experts are dropped even if the operator asked for a size. */
export const PRESSURE_BYTES = 256 * 1024 ** 2;
/** More memory is taken only if this many times the margin is free, so that dropped experts are not read again at once. */
const GROWTH_FACTOR = 1.25;

/**
 * Bytes that held experts may take now. `setting`: the operator's limit, or auto. If the result is less than what is held, some experts must
 * be dropped.
 */
export function hostMemoryBudget(setting: number | 'auto', { freeBytes, heldBytes }: HostMemoryReading): number {
  const marginBytes =
    setting === 'auto'
      ? Math.max(AUTOMATIC_MARGIN_BYTES, (freeBytes + heldBytes) * AUTOMATIC_MARGIN_SHARE)
      : PRESSURE_BYTES;
  const limitBytes = setting === 'auto' ? Number.MAX_SAFE_INTEGER : setting;
  if (freeBytes < marginBytes) return Math.max(0, Math.min(limitBytes, heldBytes - (marginBytes - freeBytes)));
  return Math.min(limitBytes, heldBytes + Math.max(0, freeBytes - marginBytes * GROWTH_FACTOR));
}
