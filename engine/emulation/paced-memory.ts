import type { DeviceBytes } from './device-profile.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { DevicePace } from './device-pace.js';

/** A slot for a sliced expert takes memory for its upper slices, and for its lower ones where it has them. */
export type PacedMemoryKind = keyof DeviceBytes | 'upperSliceBytes' | 'lowerSliceBytes';

const NAMES: Record<PacedMemoryKind, string> = {
  outerBytes: 'embedding, LM head and final norm',
  denseLayerBytes: 'the dense weights of a layer',
  expertBytes: 'a resident expert',
  slotBytes: 'slots for experts',
  upperSliceBytes: 'slots for upper slices',
  lowerSliceBytes: 'lower slices in slots',
  slotSharedBytes: 'what slots share',
  exponentEntryBytes: 'entries that keep exponents',
  signMantissaEntryBytes: 'entries that keep signs and mantissas',
  cacheRowBytes: 'rows of the cache',
  stateBytes: 'recurrent states of a sequence',
};

/** The memory in use on a paced device, in bytes of the model that it emulates. */
export class PacedMemory {
  private used = 0;
  private highWater = 0;

  constructor(
    readonly bytes: DeviceBytes,
    readonly budgetBytes: number,
  ) {}

  /** Null: the memory of the device that does the arithmetic counts. */
  static of(pace: DevicePace): PacedMemory | null {
    return pace.memory === null ? null : new PacedMemory(pace.memory.bytes, pace.memory.budgetBytes);
  }

  get usedBytes(): number {
    return this.used;
  }

  get highWaterBytes(): number {
    return this.highWater;
  }

  /** @throws DEVICE_OUT_OF_MEMORY when the budget does not hold that many more; then nothing is counted */
  hold(what: PacedMemoryKind, count: number): void {
    const bytes = this.bytesOf(what) * count;
    if (this.budgetBytes !== 0 && this.used + bytes > this.budgetBytes) {
      throw new OdmoeError(
        'DEVICE_OUT_OF_MEMORY',
        `the emulated device cannot hold ${NAMES[what]}: the profiled model needs ${bytes} bytes, and ${this.used} of the ` +
          `budget's ${this.budgetBytes} are in use; give the profile's device more memory, or less to hold`,
      );
    }
    this.used += bytes;
    this.highWater = Math.max(this.highWater, this.used);
  }

  letGo(what: PacedMemoryKind, count: number): void {
    this.used -= this.bytesOf(what) * count;
  }

  /** Slices are stored in the place of the parts of a lossless expert. */
  bytesOf(what: PacedMemoryKind): number {
    const { slotBytes, signMantissaEntryBytes } = this.bytes;
    if (what === 'lowerSliceBytes') return signMantissaEntryBytes;
    return what === 'upperSliceBytes' ? slotBytes - signMantissaEntryBytes : this.bytes[what];
  }
}

/** The memory of one handle; it is all released with the handle. */
export class HeldMemory {
  private readonly counts = new Map<PacedMemoryKind, number>();

  constructor(private readonly memory: PacedMemory | null) {}

  /** @throws DEVICE_OUT_OF_MEMORY */
  hold(what: PacedMemoryKind, count: number): void {
    this.memory?.hold(what, count);
    this.counts.set(what, (this.counts.get(what) ?? 0) + count);
  }

  letGo(what: PacedMemoryKind, count: number): void {
    this.memory?.letGo(what, count);
    this.counts.set(what, (this.counts.get(what) ?? 0) - count);
  }

  /** Idempotent. */
  letGoAll(): void {
    for (const [what, count] of this.counts) this.memory?.letGo(what, count);
    this.counts.clear();
  }
}
