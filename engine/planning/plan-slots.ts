import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { lookAheadSlots } from '../../shared/decisions/placement/group-size.js';

/** Memory that slots take when their number is not set. */
export const AUTOMATIC_SLOTS_BYTES = 256 * 1024 * 1024;

/** The assumed number of workers when the settings do not tell it. */
const FEW_WORKERS = 2;

/**
 * The number of slots when the settings do not set it. It is enough for a worker to load its experts of the next layer while it executes those
 * of this one, even with only FEW_WORKERS, within AUTOMATIC_SLOTS_BYTES. It is at least two, and enough for groups of the size that is set or
 * that the workers allow. `workers`: the number of workers in cluster.yaml; null: it lists none.
 */
export function automaticSlots(
  expertsPerToken: number,
  { groupSize, workers }: { groupSize: number | 'auto'; workers: number | null },
  slotBytes: number,
): number {
  const most = lookAheadSlots(expertsPerToken, FEW_WORKERS);
  const wanted = groupSize === 'auto' ? expertsPerToken : groupSize;
  const least = lookAheadSlots(expertsPerToken, Math.min(wanted, expertsPerToken, workers ?? wanted));
  return Math.max(least, Math.min(most, Math.floor(AUTOMATIC_SLOTS_BYTES / Math.max(1, slotBytes))));
}

export interface SlotPlan {
  slots: number;
  /** Rows of one native call; an execute with more rows is split into several calls. */
  maxRows: number;
  /** Memory for experts and parts that are cached between their uses. */
  cacheBytes: number;
}

/**
 * The slots and cache that a memory budget holds: the wanted number of slots or as many as fit, with fewer rows per native call if that makes
 * room for the first slot; the rest goes to the cache. `freeBytes` null: no limit. Throws DEVICE_OUT_OF_MEMORY when not even one slot fits.
 */
export function planSlots(
  wanted: SlotPlan,
  freeBytes: number | null,
  bytesFor: (maxRows: number) => { slotBytes: number; sharedBytes: number },
): SlotPlan {
  if (freeBytes === null) return wanted;
  for (let maxRows = wanted.maxRows; ; maxRows = Math.ceil(maxRows / 2)) {
    const { slotBytes, sharedBytes } = bytesFor(maxRows);
    const slots = Math.min(wanted.slots, Math.floor((freeBytes - sharedBytes) / slotBytes));
    if (slots >= 1) {
      return { slots, maxRows, cacheBytes: Math.min(wanted.cacheBytes, freeBytes - sharedBytes - slots * slotBytes) };
    }
    if (maxRows === 1) {
      throw new OdmoeError(
        'DEVICE_OUT_OF_MEMORY',
        `a slot for one expert of this model takes ${slotBytes} bytes of device memory, and what all slots share ${sharedBytes} bytes; the ` +
          `budget has ${Math.max(0, freeBytes)} left for both: give it a larger memory budget (--memory-budget)`,
      );
    }
  }
}
