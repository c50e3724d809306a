import {
  type ExpertOrder,
  type ExpertSlots,
  type HoldOutcome,
  type LoadOutcome,
  type LoadRequest,
  type RecodeOutcome,
  wrapperOf,
} from '../../native/index.js';
import { type DeviceTimes, operatorMs } from './device-profile.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { perPart, type PerPart } from '../../shared/model/expert-parts.js';
import type { SliceReading } from '../../shared/model/tensor-source.js';
import type { PaceRuntime } from './exact-timer.js';
import type { PacedLink, PacedLoad } from './paced-link.js';
import type { HeldMemory } from './paced-memory.js';
import type { PacedProcessor } from './paced-processor.js';

/** Memory of a slot: for an expert as it was shipped, or for upper slices. */
export type SlotKind = 'slotBytes' | 'upperSliceBytes';

/** Components that the handles on one paced device share. */
export interface PacedParts {
  readonly runtime: PaceRuntime;
  readonly times: DeviceTimes;
  readonly processor: PacedProcessor;
  readonly link: PacedLink;
}

const CANCELLED: LoadOutcome = {
  loaded: false,
  readBytes: 0,
  loadMs: 0,
  readMs: perPart(() => 0),
  decompressMs: 0,
  cached: perPart(() => false),
};

const NOT_HELD: HoldOutcome = { held: false, bytes: 0, readBytes: 0 };

interface LoadUnderWay {
  readonly load: PacedLoad;
  /** It adds lower slices to the upper ones in the slot, which may execute meanwhile. */
  readonly addsLower: boolean;
  readonly cancel: () => void;
}

interface Slot {
  loading: LoadUnderWay | null;
  loaded: boolean;
  hasMemory: boolean;
  hasLowerMemory: boolean;
  /** The real slot still has lower slices that the profiled one has given up. */
  hasStaleLower: boolean;
  executing: number;
}

/**
 * Slots of a paced device. A load ends when its bytes have gone over the profiled link, and its outcome depends on that time alone: a load that
 * is cancelled earlier counts as not loaded and cached nothing, at any progress of the real load. The next load begins only after the real one
 * has ended.
 */
export class PacedExpertSlots extends wrapperOf<ExpertSlots>() {
  override readonly count: number;
  override readonly slotBytes: number;
  // Left out, because it would take no paced time.
  override readonly executeHere = undefined;
  private readonly slots: Slot[];
  /** Real work that loads wait for: cancelled loads that have not settled, and a pack call. */
  private readonly abandoned = new Set<Promise<unknown>>();
  /** Cancels the hold under way; null: no hold is under way. */
  private holding: (() => void) | null = null;
  /** Numbers of pack calls: all, and those up to which they are cancelled. */
  private packs = { asked: 0, cancelled: 0 };
  /** The latest real hold that was cancelled. */
  private abandonedHold: Promise<void> | null = null;

  constructor(
    private readonly handle: ExpertSlots,
    private readonly parts: PacedParts,
    private readonly slotMemory: { readonly bytes: number; readonly kind: SlotKind },
    private readonly held: HeldMemory,
  ) {
    super(handle);
    this.count = handle.count;
    this.slotBytes = slotMemory.bytes;
    this.slots = Array.from({ length: handle.count }, () => ({
      loading: null,
      loaded: false,
      hasMemory: true,
      hasLowerMemory: false,
      hasStaleLower: false,
      executing: 0,
    }));
  }

  override async load(index: number, expert: number, request: LoadRequest): Promise<LoadOutcome> {
    const slot = this.idleSlot(index);
    const addsLower = request.parts.exponent.from === 'notWanted';
    if (slot.executing > 0 && !addsLower) throw misuse(`slot ${index} is executing; await that before loading over it`);
    if (!slot.hasMemory) throw misuse(`slot ${index} has given its memory back`);
    const wantsLower = request.parts.signMantissa.from !== 'notWanted';
    if (this.isSliced && wantsLower && !slot.hasLowerMemory)
      throw misuse(`slot ${index} has no memory for lower slices`);
    if (!addsLower) slot.loaded = false;
    const askedMs = this.parts.runtime.eventMs();
    const { stop, work } = this.startWork(index, expert, request);
    return new Promise((resolve, reject) => {
      const load: PacedLoad = {
        partMs: this.partMs(request),
        recoverMs: this.parts.times.recoverMs,
        urgent: request.urgent,
        order: request.order,
        work,
        ended: () => {
          slot.loading = null;
          work.then((outcome) => {
            slot.loaded ||= outcome.loaded;
            resolve(this.timed(outcome, load, askedMs));
          }, reject);
        },
      };
      const cancel = (): void => {
        slot.loading = null;
        this.parts.link.cancel(load);
        stop();
        resolve({ ...CANCELLED, loadMs: this.parts.runtime.eventMs() - askedMs });
      };
      slot.loading = { load, addsLower, cancel };
      this.parts.link.begin(load);
    });
  }

  override cancel(index: number): void {
    this.slotAt(index).loading?.cancel();
  }

  override prioritize(index: number): void {
    const { loading } = this.slotAt(index);
    if (loading !== null) this.parts.link.prioritize(loading.load);
  }

  override reorder(index: number, order: ExpertOrder | null): void {
    const { loading } = this.slotAt(index);
    if (loading !== null) this.parts.link.reorder(loading.load, order);
  }

  override async execute(
    index: number,
    rows: number,
    hidden: Uint8Array,
    output: Uint8Array,
    readings?: readonly SliceReading[],
  ): Promise<{ executeMs: number }> {
    const slot = this.slotAt(index).loading?.addsLower === true ? this.slotAt(index) : this.idleSlot(index);
    if (!slot.loaded) throw misuse(`slot ${index} holds no expert to execute`);
    const executeMs = operatorMs(this.parts.times.expert, rows);
    slot.executing += 1;
    try {
      await this.parts.processor.operate(executeMs, () => this.handle.execute(index, rows, hidden, output, readings));
    } finally {
      slot.executing -= 1;
    }
    return { executeMs };
  }

  /** Only the profiled bytes are released; the real slot keeps its memory, because a cancelled load may still write to it. */
  override letGo(index: number): void {
    const slot = this.idleSlot(index);
    if (slot.executing > 0) throw misuse(`slot ${index} is executing; await that before its memory goes`);
    slot.loaded = false;
    if (!slot.hasMemory) return;
    this.letGoLower(index);
    slot.hasMemory = false;
    this.held.letGo(this.slotMemory.kind, 1);
  }

  override take(index: number): void {
    const slot = this.idleSlot(index);
    if (slot.hasMemory) return;
    this.held.hold(this.slotMemory.kind, 1);
    slot.hasMemory = true;
  }

  override letGoLower(index: number): void {
    const slot = this.idleSlot(index);
    if (!slot.hasLowerMemory) return;
    slot.hasLowerMemory = false;
    slot.hasStaleLower = true;
    this.held.letGo('lowerSliceBytes', 1);
  }

  override takeLower(index: number): void {
    const slot = this.idleSlot(index);
    if (!this.isSliced) throw misuse(`slot ${index} is for experts that are not sliced`);
    if (slot.hasLowerMemory) return;
    this.held.hold('lowerSliceBytes', 1);
    slot.hasLowerMemory = true;
  }

  /** Takes the link like a load that nobody waits for. */
  override async hold(expert: number): Promise<HoldOutcome> {
    const { stop, work } = this.startHold(expert);
    const shareMs = shareMsOf(this.parts.times);
    return new Promise((resolve, reject) => {
      const load: PacedLoad = {
        partMs: shareMs,
        recoverMs: 0,
        urgent: false,
        order: null,
        work,
        ended: () => {
          this.holding = null;
          work.then(resolve, reject);
        },
      };
      this.holding = () => {
        this.holding = null;
        this.parts.link.cancel(load);
        stop();
        resolve(NOT_HELD);
      };
      this.parts.link.begin(load);
    });
  }

  override cancelHold(): void {
    this.holding?.();
  }

  /** Takes the processor for the time of one row. It cannot be cancelled after it has begun, because the real one does not follow the paced time. */
  override async pack(index: number): Promise<RecodeOutcome> {
    const slot = this.slotAt(index);
    this.packs.asked += 1;
    const ticket = this.packs.asked;
    const mayBegin = (): boolean =>
      ticket > this.packs.cancelled && slot.loading === null && slot.loaded && slot.executing === 0;
    return this.parts.processor.operate(operatorMs(this.parts.times.expert, 1), async () => {
      if (!mayBegin()) return 'givenUp';
      const work = this.handle.pack(index);
      const over = work.then(
        () => undefined,
        () => undefined,
      );
      this.abandoned.add(over);
      void over.then(() => this.abandoned.delete(over));
      return work;
    });
  }

  override cancelPack(): void {
    this.packs.cancelled = this.packs.asked;
  }

  override dispose(): void {
    this.holding?.();
    for (const { loading } of this.slots) loading?.cancel();
    this.handle.dispose();
    this.held.letGoAll();
  }

  /** Like startWork, for a hold. If the real hold succeeds after it was stopped, its expert is dropped. */
  private startHold(expert: number): { stop: () => void; work: Promise<HoldOutcome> } {
    const before = this.abandonedHold;
    let stopped = false;
    const begin = async (): Promise<HoldOutcome> => {
      if (before !== null) await before;
      return stopped ? NOT_HELD : this.handle.hold(expert);
    };
    const work = begin();
    const over = work.then(
      ({ held }) => {
        if (held && stopped) this.handle.dropHeld(expert);
      },
      () => undefined,
    );
    const stop = (): void => {
      stopped = true;
      this.abandonedHold = over;
      this.handle.cancelHold();
    };
    return { stop, work };
  }

  /** Begins the real load after the cancelled loads have ended, because they may still write to the slot or to an entry. */
  private startWork(
    index: number,
    expert: number,
    request: LoadRequest,
  ): { stop: () => void; work: Promise<LoadOutcome> } {
    let stopped = false;
    let begun = false;
    const begin = async (): Promise<LoadOutcome> => {
      if (this.abandoned.size > 0) await Promise.allSettled(this.abandoned);
      if (stopped) return CANCELLED;
      begun = true;
      this.prepareLower(index, request);
      return this.handle.load(index, expert, request);
    };
    const work = begin();
    // The reason of a failure is reported when the load ends.
    const over = work.then(
      () => undefined,
      () => undefined,
    );
    const stop = (): void => {
      stopped = true;
      this.abandoned.add(over);
      void over.then(() => this.abandoned.delete(over));
      if (begun) this.handle.cancel(index);
    };
    return { stop, work };
  }

  /** Gives the real slot the memory for lower slices that the load wants, without those that the profiled slot has given up. */
  private prepareLower(index: number, { parts }: LoadRequest): void {
    if (!this.isSliced) return;
    const slot = this.slotAt(index);
    if (slot.hasStaleLower) this.handle.letGoLower(index);
    slot.hasStaleLower = false;
    if (parts.signMantissa.from !== 'notWanted') this.handle.takeLower(index);
  }

  private get isSliced(): boolean {
    return this.slotMemory.kind === 'upperSliceBytes';
  }

  private partMs({ parts }: LoadRequest): PacedLoad['partMs'] {
    const shareMs = shareMsOf(this.parts.times);
    return perPart((part) => (parts[part].from === 'storage' ? shareMs[part] : 0));
  }

  /** The outcome, with the times of the profiled device. */
  private timed(outcome: LoadOutcome, { partMs, recoverMs }: PacedLoad, askedMs: number): LoadOutcome {
    return {
      ...outcome,
      loadMs: this.parts.runtime.eventMs() - askedMs,
      readMs: partMs,
      decompressMs: recoverMs,
    };
  }

  private idleSlot(index: number): Slot {
    const slot = this.slotAt(index);
    if (slot.loading === null) return slot;
    throw misuse(`slot ${index} is being loaded; await the load, or cancel and await it`);
  }

  private slotAt(index: number): Slot {
    const slot = this.slots[index];
    if (slot === undefined) throw misuse(`slot ${index} of ${this.count}`);
    return slot;
  }
}

/** Time on the link for each part of an expert that is read from storage. */
function shareMsOf({ loadMs, exponentShare }: DeviceTimes): PerPart<number> {
  return { exponent: exponentShare * loadMs, signMantissa: (1 - exponentShare) * loadMs };
}

function misuse(what: string): OdmoeError {
  return new OdmoeError('INTERNAL', `emulated device: ${what}`);
}
