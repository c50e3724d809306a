import type { ExpertSlots } from '../../native/index.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { toOdmoeError, type OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { SliceSizes } from '../../shared/decisions/slices/displace-slices.js';

/** Calls that move memory between the device and the slots. */
export type SlotMemoryCalls = Pick<ExpertSlots, 'take' | 'letGo' | 'takeLower' | 'letGoLower'>;

export interface SliceMemoryOptions extends SliceSizes {
  /** Slots of the cache. Each has memory for upper slices at first; together they fit `bytes`. */
  slots: number;
  /** The number of the cache's first slot. */
  firstSlot: number;
  /** All device memory of the cache. */
  bytes: number;
  /** Other users of the device could take memory that the cache does not hold: it holds all that it may. */
  isShared: boolean;
  calls: SlotMemoryCalls;
}

/** The memory of a cache of slices. It is held by slots for upper slices, and by lower slices in them, and moves from one to the other. */
export class SliceMemory {
  /** Entries without an expert, with and without memory for upper slices. */
  private readonly free: number[];
  private readonly absent: number[] = [];
  private readonly lower = new Set<number>();
  #bytes: number;

  constructor(private readonly options: SliceMemoryOptions) {
    this.free = Array.from({ length: options.slots }, (_, index) => options.slots - 1 - index);
    this.#bytes = options.bytes;
  }

  /** All memory that the cache may hold now. */
  get bytes(): number {
    return this.#bytes;
  }

  get heldBytes(): number {
    const { slots, upperBytes, lowerBytes } = this.options;
    return (slots - this.absent.length) * upperBytes + this.lower.size * lowerBytes;
  }

  /** The entry of a slot with memory for upper slices; null: the device refused the memory. The caller knows that there is room. */
  takeEntry(): number | null {
    return this.free.pop() ?? this.takeAbsent();
  }

  giveEntry(entry: number): void {
    this.giveLower(entry);
    this.free.push(entry);
  }

  /**
   * Takes memory for the entry's lower slices. The caller knows that there is room. If others have taken it although it was this cache's, free slots
   * give up theirs. Null: it has the memory.
   */
  takeLower(entry: number): OdmoeError | null {
    this.letGoFree(this.#bytes - this.options.lowerBytes);
    for (;;) {
      const refusal = this.refusal(() => this.options.calls.takeLower(this.slotOf(entry)));
      if (refusal === null) this.lower.add(entry);
      if (refusal === null || this.free.length === 0) return refusal;
      this.letGoOne();
    }
  }

  /** Does nothing for an entry without memory for lower slices. */
  giveLower(entry: number): void {
    if (!this.lower.delete(entry)) return;
    this.options.calls.letGoLower(this.slotOf(entry));
    this.claim();
  }

  /** From now on the cache may hold so many bytes; its slices take no more already. */
  lendTo(bytes: number): void {
    this.#bytes = Math.min(this.#bytes, bytes);
    this.letGoFree(this.#bytes);
  }

  takeBack(bytes: number): void {
    this.#bytes = Math.min(this.options.bytes, this.#bytes + bytes);
    this.claim();
  }

  /** Gives memory of free slots back until the cache holds at most so many bytes. */
  private letGoFree(bytes: number): void {
    while (this.heldBytes > bytes) this.letGoOne();
  }

  private letGoOne(): void {
    const entry = requirePresent(this.free.pop(), 'slices for which there is room leave a slot free.');
    this.options.calls.letGo(this.slotOf(entry));
    this.absent.push(entry);
  }

  private claim(): void {
    if (!this.options.isShared) return;
    while (this.absent.length > 0 && this.heldBytes + this.options.upperBytes <= this.#bytes) {
      const entry = this.takeAbsent();
      if (entry === null) return;
      this.free.push(entry);
    }
  }

  private takeAbsent(): number | null {
    const entry = requirePresent(this.absent.at(-1), 'there is a slot for upper slices that have room.');
    if (this.refusal(() => this.options.calls.take(this.slotOf(entry))) !== null) return null;
    this.absent.pop();
    return entry;
  }

  private slotOf(entry: number): number {
    return this.options.firstSlot + entry;
  }

  /** @throws errors other than a lack of memory */
  private refusal(take: () => void): OdmoeError | null {
    try {
      take();
      return null;
    } catch (thrown) {
      const error = toOdmoeError(thrown);
      if (error.code !== 'DEVICE_OUT_OF_MEMORY') throw thrown;
      return error;
    }
  }
}
