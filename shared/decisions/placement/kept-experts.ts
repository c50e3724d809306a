import type { PlacedWorker, Placement } from '../../wire/messages.js';

const BITS = 8;

/** Bytes of a bitmap of all experts of a model. */
export function keptBytes({ layers, experts }: Pick<Placement, 'layers' | 'experts'>): number {
  return Math.ceil((layers * experts) / BITS);
}

/** True if the bitmap (PlacedWorker.kept_experts) has the expert. */
export function hasKept(kept: Uint8Array, experts: number, layer: number, expert: number): boolean {
  const place = layer * experts + expert;
  return (((kept[Math.floor(place / BITS)] ?? 0) >> (place % BITS)) & 1) === 1;
}

/** Adds an expert to the bitmap. */
export function keep(kept: Uint8Array, experts: number, layer: number, expert: number): void {
  const place = layer * experts + expert;
  const at = Math.floor(place / BITS);
  kept[at] = (kept[at] ?? 0) | (1 << (place % BITS));
}

/** Number of experts in the bitmap. */
export function countKept(kept: Uint8Array): number {
  let count = 0;
  for (const byte of kept) for (let bits = byte; bits > 0; bits &= bits - 1) count += 1;
  return count;
}

/** True if the worker has a bitmap, even one without any expert: it is the first home of the experts in it, and of no others. */
export function keepsExperts({ keptExperts }: Pick<PlacedWorker, 'keptExperts'>): boolean {
  return keptExperts !== undefined && keptExperts.length > 0;
}

/** The worker that keeps the expert; null: none does. Only strict homes know such workers. */
export function keeperOf(
  { workers, experts }: Pick<Placement, 'workers' | 'experts'>,
  layer: number,
  expert: number,
): string | null {
  const keeper = workers.find(
    ({ keptExperts }) => keptExperts !== undefined && hasKept(keptExperts, experts, layer, expert),
  );
  return keeper?.id ?? null;
}
