import {
  type Device,
  type DeviceInfo,
  type ExpertShape,
  type ExpertSlotBytes,
  type ExpertSlots,
  type LoaderOptions,
  type Model,
  wrapperOf,
} from '../../native/index.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { PARTS, perPart } from '../../shared/model/expert-parts.js';
import { isSlicedSplit } from '../../shared/model/weight-dtype.js';
import type { DevicePace } from './device-pace.js';
import type { PaceRuntime } from './exact-timer.js';
import { PacedLink } from './paced-link.js';
import { HeldMemory, PacedMemory } from './paced-memory.js';
import { PacedModel } from './paced-model.js';
import { PacedProcessor } from './paced-processor.js';
import { PacedExpertSlots, type PacedParts, type SlotKind } from './paced-slots.js';

/**
 * A device that emulates another one: `device` does the arithmetic, and each operation ends when the profiled device would have finished it.
 * Memory is counted in bytes of the profiled model; `device` should have no budget. The outcome and end of an operation depend only on the
 * runtime's time: on a virtual clock a history is the same on every machine. On a real clock this is a testbed, as long as the arithmetic is
 * faster than the profiled device.
 */
export function pacedDevice(device: Device, pace: DevicePace, runtime: PaceRuntime): Device {
  return new PacedDevice(device, pace, runtime);
}

class PacedDevice extends wrapperOf<Device>() {
  private readonly parts: PacedParts;
  private readonly memory: PacedMemory | null;

  constructor(
    private readonly device: Device,
    pace: DevicePace,
    runtime: PaceRuntime,
  ) {
    super(device);
    const [processor, link] = [new PacedProcessor(runtime), new PacedLink(runtime)];
    this.parts = { runtime, times: pace.times, processor, link };
    this.memory = PacedMemory.of(pace);
  }

  override info(): DeviceInfo {
    const info = { ...this.device.info(), backend: 'emulated' };
    if (this.memory === null) return info;
    const { budgetBytes, usedBytes, highWaterBytes } = this.memory;
    return { ...info, budgetBytes, usedBytes, highWaterBytes };
  }

  override createModel(shape: ModelShape): Model {
    return new PacedModel(this.device.createModel(shape), this.parts, this.memory);
  }

  override createExpertSlots(shape: ExpertShape, count: number, maxRows: number, loader: LoaderOptions): ExpertSlots {
    const held = new HeldMemory(this.memory);
    try {
      held.hold('slotSharedBytes', 1);
      const kind = slotKindOf(shape);
      held.hold(kind, loader.packs === true ? count + 1 : count);
      for (const part of PARTS) held.hold(`${part}EntryBytes`, loader.entries[part]);
      const slots = this.device.createExpertSlots(shape, count, maxRows, loader);
      const slotBytes = this.memory?.bytesOf(kind) ?? slots.slotBytes;
      return new PacedExpertSlots(slots, this.parts, { bytes: slotBytes, kind }, held);
    } catch (thrown) {
      held.letGoAll();
      throw thrown;
    }
  }

  override expertSlotBytes(shape: ExpertShape, maxRows: number, loader: LoaderOptions): ExpertSlotBytes {
    if (this.memory === null) return this.device.expertSlotBytes(shape, maxRows, loader);
    const { bytes } = this.memory;
    const kind = slotKindOf(shape);
    const slotBytes = this.memory.bytesOf(kind);
    const lowerBytes = kind === 'slotBytes' ? 0 : this.memory.bytesOf('lowerSliceBytes');
    const sharedBytes = bytes.slotSharedBytes + (loader.packs === true ? slotBytes : 0);
    return { slotBytes, lowerBytes, sharedBytes, entryBytes: perPart((part) => bytes[`${part}EntryBytes`]) };
  }
}

/** The memory that a slot has from the beginning. */
function slotKindOf({ format }: ExpertShape): SlotKind {
  return isSlicedSplit(format) ? 'upperSliceBytes' : 'slotBytes';
}
