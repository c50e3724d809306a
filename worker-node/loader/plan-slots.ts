import { OdmoeError } from '../../shared/errors/odmoe-error.js';

export interface SlotPlan {
  slots: number;
  /** Rows of one native call; longer executes are run in pieces. */
  maxRows: number;
  /** Of what is kept of experts between their uses. */
  cacheBytes: number;
}

/**
 * How much a memory budget holds: as many slots as wanted, else as many as fit, with shorter native calls where that makes room
 * for the first slot; and of the cache what is left. `freeBytes` null: no limit. Throws DEVICE_OUT_OF_MEMORY when not even one slot
 * fits.
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
        `One expert of this model takes ${slotBytes + sharedBytes} bytes of device memory, and the budget has ` +
          `${freeBytes} left: give the worker a larger memory budget.`,
      );
    }
  }
}
