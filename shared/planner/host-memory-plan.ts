/** Which experts a worker keeps in host memory, and how much of that memory it may take. Pure. */

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
