/**
 * The one rule by which a cache of slices, of any layers, makes room (SliceMoE, section 4.1). Upper slices leave by LRU. Lower slices leave before
 * any upper slice, also by LRU, and never take the place of an upper one: a lower slice for which the upper slices leave no room is used and not
 * kept. So a lower slice is never there without its upper one.
 *
 * Simulations compare it with a second rule, which spares lower slices: as long as they take no more than a share of the capacity, upper slices
 * leave in their place, by LRU and with their own lower ones.
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

export interface SlicedCapacity extends SliceSizes {
  readonly capacityBytes: number;
  /** Share of the capacity in which lower slices are spared; left out: 0. */
  readonly sparedShare?: number;
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
  cache: SlicedCapacity,
  { slice, expert }: SliceOf,
  isPinned: IsPinned = () => false,
): SliceOf[] | null {
  if (slice === 'lower' && !held.holds(expert, 'upper')) return null;
  const roomBytes = cache.capacityBytes - sliceBytes(cache, slice);
  const sparedBytes = (cache.sparedShare ?? 0) * cache.capacityBytes;
  if (slice === 'upper') return displaceTo(held, cache, roomBytes, isPinned, true, sparedBytes);
  if (sparedBytes === 0 || sparedBytes < cache.lowerBytes) return displaceTo(held, cache, roomBytes, isPinned, false);
  const staysToo: IsPinned = (other) => other === expert || isPinned(other);
  return displaceTo(held, cache, roomBytes, staysToo, true, sparedBytes - cache.lowerBytes);
}

/**
 * The slices that leave a cache so that the rest takes at most `roomBytes`, in the order in which they leave. Null: those that may leave do not
 * suffice. `mayLoseUppers`: false if only lower slices may leave. `sparedBytes`: so many bytes of lower slices stay while upper ones may leave.
 */
export function displaceTo(
  held: HeldSlices,
  sizes: SliceSizes,
  roomBytes: number,
  isPinned: IsPinned,
  mayLoseUppers = true,
  sparedBytes = 0,
): SliceOf[] | null {
  let excessBytes = held.bytes('upper') + held.bytes('lower') - roomBytes;
  let lowerBytes = held.bytes('lower');
  const leaving: SliceOf[] = [];
  const gone = new Set<number>();
  for (const expert of held.byUse('lower')) {
    if (excessBytes <= 0 || lowerBytes <= sparedBytes) break;
    if (isPinned(expert)) continue;
    leaving.push({ slice: 'lower', expert });
    gone.add(expert);
    lowerBytes -= sizes.lowerBytes;
    excessBytes -= sizes.lowerBytes;
  }
  for (const expert of mayLoseUppers ? held.byUse('upper') : []) {
    if (excessBytes <= 0) break;
    if (isPinned(expert)) continue;
    if (held.holds(expert, 'lower') && !gone.has(expert)) {
      leaving.push({ slice: 'lower', expert });
      excessBytes -= sizes.lowerBytes;
    }
    leaving.push({ slice: 'upper', expert });
    excessBytes -= sizes.upperBytes;
  }
  return excessBytes <= 0 ? leaving : null;
}
