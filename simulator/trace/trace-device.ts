import {
  ONE_READ_AT_A_TIME,
  type Device,
  type DeviceInfo,
  type ExpertSlotBytes,
  type ExpertShape,
  type ExpertSlots,
  type HoldOutcome,
  type LoadOutcome,
  type LoadRequest,
  type RecodeOutcome,
  type Model,
  type Pass,
  type ResidentWeights,
  type Sequence,
} from '../../native/index.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import type { TraceModel } from './trace-model.js';
import { TracePass } from './trace-pass.js';
import { TraceSequence } from './trace-sequence.js';
import { perPart } from '../../shared/model/expert-parts.js';

const NO_WEIGHTS: ResidentWeights = { kinds: [], fellBack: 0 };

/**
 * A device without arithmetic: a trace gives the choices of its models, loads and experts finish at once, outputs are zero. The paced device
 * around it (engine/devices) adds time and memory. `model` null: for a worker, which runs no model.
 */
export class TraceDevice implements Device {
  constructor(private readonly model: TraceModel | null) {}

  info(): DeviceInfo {
    return {
      backend: 'trace',
      instructionSet: 'none',
      threads: 1,
      name: '',
      budgetBytes: 0,
      usedBytes: 0,
      highWaterBytes: 0,
      contextBytes: 0,
      driverUsedBytes: null,
      pagedExperts: false,
    };
  }

  createModel(shape: ModelShape): Model {
    const model = this.model ?? { experts: () => [], ahead: () => [], nextToken: () => 0 };
    return {
      shape,
      loadDense: async () => undefined,
      loadResidentExpert: async () => undefined,
      residentWeights: () => NO_WEIGHTS,
      createSequence: (): Sequence => new TraceSequence(shape),
      sequenceBytes: 0,
      createPass: (): Pass => new TracePass(model, shape),
      dispose: () => undefined,
    };
  }

  createExpertSlots(_shape: ExpertShape, count: number): ExpertSlots {
    return new TraceSlots(count);
  }

  expertSlotBytes(): ExpertSlotBytes {
    return { slotBytes: 0, lowerBytes: 0, sharedBytes: 0, entryBytes: perPart(() => 0) };
  }

  dispose(): void {
    // It holds nothing.
  }
}

/** Slots without contents. */
class TraceSlots implements ExpertSlots {
  readonly slotBytes = 0;
  readonly storageReads = ONE_READ_AT_A_TIME;

  private registered = 0;

  constructor(readonly count: number) {}

  register(): number {
    return this.registered++;
  }

  async load(_slot: number, _expert: number, { parts }: LoadRequest): Promise<LoadOutcome> {
    return {
      loaded: true,
      readBytes: 0,
      loadMs: 0,
      readMs: perPart(() => 0),
      decompressMs: 0,
      cached: perPart((part) => parts[part].entry >= 0),
    };
  }

  cancel(): void {
    // A load ends at once, so there is nothing to cancel.
  }

  letGo(): void {
    // It has no memory.
  }

  take(): void {
    // As in letGo.
  }

  letGoLower(): void {
    // As in letGo.
  }

  takeLower(): void {
    // As in letGo.
  }

  prioritize(): void {
    // As in cancel.
  }

  reorder(): void {
    // As in cancel.
  }

  async execute(_slot: number, _rows: number, _hidden: Uint8Array, output: Uint8Array): Promise<{ executeMs: number }> {
    output.fill(0);
    return { executeMs: 0 };
  }

  async hold(): Promise<HoldOutcome> {
    return { held: false, bytes: 0, readBytes: 0 };
  }

  cancelHold(): void {
    // No hold is ever under way.
  }

  dropHeld(): void {
    // It holds nothing.
  }

  async pack(): Promise<RecodeOutcome> {
    return 'unfit';
  }

  cancelPack(): void {
    // As in cancel.
  }

  dispose(): void {
    // It holds nothing.
  }
}
