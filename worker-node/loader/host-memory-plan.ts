/** Which experts a worker keeps in host memory, and how much of that memory it may take. Pure. */
import { divideLayer } from '../../shared/decisions/residency/storage-hierarchy.js';

/** An expert that could be held. */
export interface HoldCandidate {
  layer: number;
  expert: number;
  /** Host memory that it takes. */
  bytes: number;
  /** Activations on record. */
  activations: number;
  /** The device's cache has the whole expert: its stored bytes are needed only once that has dropped it. */
  isCached: boolean;
  /** It is in host memory now. */
  isHeld: boolean;
}

/** What a cached expert's activations count for: it is loaded again only after the cache has dropped it. */
const CACHED_SHARE = 0.25;
/** An expert takes the place of a held one only where it is used so many times as often: a fill costs a whole read. */
const REPLACEMENT_FACTOR = 1.25;

/**
 * The experts to hold in `budgetBytes`, the most useful first: those that are used most, and among equals those of the first layers.
 * Planned again with what it chose as held, it chooses the same.
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

/** Stored bytes that loads get a second; null: not measured. */
export interface LoadRates {
  hostBytesPerS: number | null;
  storageBytesPerS: number | null;
}

/** A held expert stays while its layer holds no more than so many times its part: measured rates are never quite the same. */
const PART_TOLERANCE = 1.15;

/**
 * The experts to hold where the rest of each layer comes from storage at the same time (FluxMoE section 4.2, equations 6 to 8): of what a layer
 * loads, host memory has its part by bandwidth, so that both end together, and no more than the layer's share of `budgetBytes`. In each layer those
 * used most come first. What the device's cache has whole is not loaded: it stays held where the share has room, and is not filled in.
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

/** Of a layer's stored bytes. Until both rates have been measured host memory has all that its share holds. */
function hostPart(layerBytes: number, shareBytes: number, { hostBytesPerS, storageBytesPerS }: LoadRates): number {
  if (hostBytesPerS === null || storageBytesPerS === null) return Math.min(layerBytes, shareBytes);
  const { bytes } = divideLayer(layerBytes, [
    { kind: 'host', bytesPerS: hostBytesPerS, capacityBytes: shareBytes },
    { kind: 'storage', bytesPerS: storageBytesPerS, capacityBytes: Infinity },
  ]);
  return bytes[0] ?? 0;
}

/** One activation more than there are on record, so that held experts stay where nothing is known. */
function expectedUse({ activations, isCached, isHeld }: HoldCandidate): number {
  return (activations + 1) * (isCached ? CACHED_SHARE : 1) * (isHeld ? REPLACEMENT_FACTOR : 1);
}

function inOrder(left: HoldCandidate, right: HoldCandidate): number {
  return left.layer - right.layer || left.expert - right.expert;
}

/** What is known of the host's memory. */
export interface HostMemoryReading {
  /** That a process could take now without pushing others out. */
  freeBytes: number;
  /** That experts take now. */
  heldBytes: number;
}

/** `auto` leaves the host so much, and at least this share of what is free without held experts. */
export const AUTOMATIC_MARGIN_BYTES = 1024 ** 3;
const AUTOMATIC_MARGIN_SHARE = 0.25;
/** Below so much free memory, experts go even where a size was asked for. */
export const PRESSURE_BYTES = 256 * 1024 ** 2;
/** More is taken only where so many times the margin is free: what is dropped is not read again at once. */
const GROWTH_FACTOR = 1.25;

/** Bytes that held experts may take now. `setting`: what the operator grants, or auto. Less than what is held: some have to go. */
export function hostMemoryBudget(setting: number | 'auto', { freeBytes, heldBytes }: HostMemoryReading): number {
  const marginBytes =
    setting === 'auto'
      ? Math.max(AUTOMATIC_MARGIN_BYTES, (freeBytes + heldBytes) * AUTOMATIC_MARGIN_SHARE)
      : PRESSURE_BYTES;
  const limitBytes = setting === 'auto' ? Number.MAX_SAFE_INTEGER : setting;
  if (freeBytes < marginBytes) return Math.max(0, Math.min(limitBytes, heldBytes - (marginBytes - freeBytes)));
  return Math.min(limitBytes, heldBytes + Math.max(0, freeBytes - marginBytes * GROWTH_FACTOR));
}
