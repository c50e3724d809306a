import type { YieldingMemory } from '../../engine/daemon/running-node.js';
import type { ExpertSlots } from '../../native/index.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { SlotEvent } from './slot-events.js';
import type { SlotRoom } from './slot-room.js';

/** Access of the slot memory to the other components of the worker. */
export interface SlotMemoryParts {
  slots: Pick<ExpertSlots, 'slotBytes' | 'take' | 'takeLower' | 'letGo'>;
  /** Bytes for lower slices that each slot has beside its own; null: it has none. */
  lowerBytes: number | null;
  room: SlotRoom;
  /** Number of cache slots that should have their memory. */
  cacheSlots: () => number;
  /** Passes the event to the schedule. Never throws. */
  handle: (event: SlotEvent) => void;
  log: Logger;
}

/** The memory of a worker's slots, which others on the same device may take. */
export class SlotMemory implements YieldingMemory {
  constructor(private readonly parts: SlotMemoryParts) {}

  get yieldableBytes(): number {
    return this.parts.room.spare * this.slotBytes;
  }

  yieldBytes(bytes: number): number {
    const { room, handle } = this.parts;
    const before = room.yielded;
    handle({ kind: 'memoryWanted', slots: Math.ceil(bytes / this.slotBytes) });
    return (room.yielded - before) * this.slotBytes;
  }

  takeBack(freeBytes: number): void {
    const { room, cacheSlots } = this.parts;
    const free = Math.floor(freeBytes / this.slotBytes);
    const wanted = room.returning(cacheSlots()).slice(0, free);
    for (const slot of wanted) if (!this.take(slot)) return;
    room.takeBack(free - wanted.length);
  }

  /** Gives back the memory of cache slots that hold nothing, or takes it again, until so many have theirs; stops before where no more can be had. */
  fitCache(slots: number, mayLetGo = true): void {
    const { room, handle } = this.parts;
    const spare = room.cachePresent - slots;
    if (spare > 0 && mayLetGo) handle({ kind: 'memoryWanted', slots: spare, spareOnly: true });
    for (const slot of room.cacheAbsent.slice(0, Math.max(0, -spare))) if (!this.take(slot)) return;
  }

  private get slotBytes(): number {
    return this.parts.slots.slotBytes + (this.parts.lowerBytes ?? 0);
  }

  /** False: the device does not have that much free memory. */
  private take(slot: number): boolean {
    const { slots, lowerBytes, handle, log } = this.parts;
    let upperTaken = false;
    try {
      slots.take(slot);
      upperTaken = true;
      if (lowerBytes !== null) slots.takeLower(slot);
    } catch (thrown) {
      if (upperTaken) slots.letGo(slot);
      const error = toOdmoeError(thrown);
      if (error.code !== 'DEVICE_OUT_OF_MEMORY') log.warn('a slot could not take its memory again', { slot, error });
      return false;
    }
    handle({ kind: 'memoryTaken', slot });
    return true;
  }
}
