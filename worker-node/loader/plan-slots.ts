import { OdmoeError } from '../../shared/errors/index.js';

export interface SlotPlan {
  slots: number;
  /** Rows of one native call; longer executes are run in pieces. */
  maxRows: number;
}

/**
 * How many slots a memory budget holds: as many as wanted, else as many as fit, with shorter native calls where that makes
 * room for the first slot. `freeBytes` null: no limit. Throws DEVICE_OUT_OF_MEMORY when not even one slot fits.
 */
export function planSlots(
  wanted: SlotPlan,
  freeBytes: number | null,
  bytesFor: (maxRows: number) => { slotBytes: number; sharedBytes: number },
): SlotPlan {
  if (freeBytes === null) return wanted;
  for (let maxRows = wanted.maxRows; ; maxRows = Math.ceil(maxRows / 2)) {
    const { slotBytes, sharedBytes } = bytesFor(maxRows);
    const fitting = Math.floor((freeBytes - sharedBytes) / slotBytes);
    if (fitting >= 1) return { slots: Math.min(wanted.slots, fitting), maxRows };
    if (maxRows === 1) {
      throw new OdmoeError(
        'DEVICE_OUT_OF_MEMORY',
        `One expert of this model takes ${slotBytes + sharedBytes} bytes of device memory, and the budget has ` +
          `${freeBytes} left: give the worker a larger memory budget.`,
      );
    }
  }
}
