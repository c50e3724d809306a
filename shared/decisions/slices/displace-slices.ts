/**
 * The one rule by which a cache of slices, of any layers, makes room (SliceMoE, section 4.1). Upper slices leave by LRU. Lower slices leave before
 * any upper slice, also by LRU, and never take the place of an upper one: a lower slice for which the upper slices leave no room is used and not
 * kept. So a lower slice is never there without its upper one.
 */
export type Slice = 'upper' | 'lower';

export interface SliceSizes {
  readonly upperBytes: number;
  readonly lowerBytes: number;
}

/** A slice by the number of its expert. */
export interface SliceOf {
  readonly slice: Slice;
  readonly expert: number;
}

/** The slices in a cache. */
export interface HeldSlices {
  holds(expert: number, slice: Slice): boolean;
  /** Bytes of all held slices of this kind. */
  bytes(slice: Slice): number;
  /** Experts with this slice, the one that was used longest ago first. */
  byUse(slice: Slice): Iterable<number>;
}

/** True for an expert whose slices must stay, because somebody uses it. */
export type IsPinned = (expert: number) => boolean;

export function sliceBytes({ upperBytes, lowerBytes }: SliceSizes, slice: Slice): number {
  return slice === 'upper' ? upperBytes : lowerBytes;
}

/**
 * The slices that leave a cache of `capacityBytes` for one that comes and is not held, in the order in which they leave. Null: there is no room
 * for it, so it is not kept and nothing leaves.
 */
export function displaceFor(
  held: HeldSlices,
  cache: SliceSizes & { readonly capacityBytes: number },
  { slice, expert }: SliceOf,
  isPinned: IsPinned = () => false,
): SliceOf[] | null {
  if (slice === 'lower' && !held.holds(expert, 'upper')) return null;
  const roomBytes = cache.capacityBytes - sliceBytes(cache, slice);
  return displaceTo(held, cache, roomBytes, isPinned, slice === 'upper');
}

/**
 * The slices that leave a cache so that the rest takes at most `roomBytes`, in the order in which they leave. Null: those that may leave do not
 * suffice. `mayLoseUppers`: false if only lower slices may leave.
 */
export function displaceTo(
  held: HeldSlices,
  sizes: SliceSizes,
  roomBytes: number,
  isPinned: IsPinned,
  mayLoseUppers = true,
): SliceOf[] | null {
  let excessBytes = held.bytes('upper') + held.bytes('lower') - roomBytes;
  const leaving: SliceOf[] = [];
  for (const slice of mayLoseUppers ? (['lower', 'upper'] as const) : (['lower'] as const)) {
    for (const expert of held.byUse(slice)) {
      if (excessBytes <= 0) return leaving;
      if (isPinned(expert)) continue;
      leaving.push({ slice, expert });
      excessBytes -= sliceBytes(sizes, slice);
    }
  }
  return excessBytes <= 0 ? leaving : null;
}
