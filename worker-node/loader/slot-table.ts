import type { ExpertId } from '../../shared/model/expert-id.js';
import { assertInvariant, requirePresent } from '../../shared/base/errors/assert-invariant.js';
import type { CacheDecisions, CacheUse, CachedPart } from './cache-decisions.js';
import { type PartlyLoadedState, stateOfParts } from '../../shared/decisions/caching/load-times.js';
import { expertKey, isPinned, type Expectation } from './expectations.js';
import type { SlotLoad } from './slot-events.js';
import { perPart, type PerPart, UPPER_PART } from '../../shared/model/expert-parts.js';

const FROM_STORAGE: CachedPart = { from: 'storage', entry: -1 };
const NOT_WANTED: CachedPart = { from: 'notWanted', entry: -1 };

/** The parts of a load of the whole expert, or of one slice of it. */
export const LOADED_PARTS = {
  all: perPart(() => FROM_STORAGE),
  upper: perPart((part) => (part === UPPER_PART ? FROM_STORAGE : NOT_WANTED)),
  lower: perPart((part) => (part === UPPER_PART ? NOT_WANTED : FROM_STORAGE)),
} as const;

/** absent: the slot's memory has been given to others. */
export type SlotPhase = 'empty' | 'loading' | 'cancelling' | 'loaded' | 'absent';

/** The lower slices of a slot whose expert is loaded. An expert that comes by one load, sliced or not, has them from then on. */
export type LowerSlices = 'missing' | 'loading' | 'loaded';

/** A place for one expert at a time. */
export interface Slot {
  readonly index: number;
  phase: SlotPhase;
  /** 'loading' also in the phase 'cancelling', if the cancelled load is that of the lower slices. */
  lower: LowerSlices;
  /** The parts of the load under way, or of the last one. */
  parts: PerPart<CachedPart>;
  layer: number;
  expert: number;
  /** The expectations of its expert. If a loaded expert has none, the cache keeps it. */
  readonly attached: Set<Expectation>;
  /** Executions under way, in the order in which they were started. */
  readonly running: Expectation[];
  /** The cache's use of the expert; null without a cache, and when nothing is attached to the slot. */
  use: CacheUse | null;
  /** The load knows that main waits for it. */
  urgent: boolean;
}

/** A load that executes wait for. */
export interface WaitedLoad {
  slot: number;
  /** An expert in this state would need the same reads: parts that the load does not read from storage count as in memory. */
  state: PartlyLoadedState;
  tickets: number[];
}

/** The slots of the cache, for full experts or slices, and the cache's decisions. */
export interface SlotCache {
  readonly slots: number;
  readonly decisions: CacheDecisions;
}

/**
 * The slots of a worker: first the working slots, which take any expert, then the slots of the cache. Counts the slots in each
 * phase; SlotSchedule decides when a slot may change.
 */
export class SlotTable {
  readonly slots: readonly Slot[];
  private readonly workingCount: number;
  private readonly phases: Record<SlotPhase, number>;
  private readonly loading = new Set<Slot>();
  /** Slots in use, by their expert. Without a cache two slots may hold the same expert: then the map has the last one. */
  private readonly slotByExpert = new Map<string, Slot>();

  /** `alone`: no expert is in two slots. */
  constructor(
    workingCount: number,
    cacheCount: number,
    private readonly alone = false,
  ) {
    this.workingCount = workingCount;
    this.phases = { empty: workingCount, loading: 0, cancelling: 0, loaded: 0, absent: 0 };
    this.slots = Array.from({ length: workingCount + cacheCount }, (_, index) => ({
      index,
      phase: 'empty',
      lower: 'missing',
      parts: LOADED_PARTS.all,
      layer: 0,
      expert: 0,
      use: null,
      urgent: false,
      attached: new Set<Expectation>(),
      running: [],
    }));
  }

  /** Number of working slots in this phase. */
  workingIn(phase: SlotPhase): number {
    return this.phases[phase];
  }

  get working(): readonly Slot[] {
    return this.slots.slice(0, this.workingCount);
  }

  at(index: number): Slot {
    return requirePresent(this.slots[index], () => `slot ${index} is one of ${this.slots.length}.`);
  }

  /** The cache's slot with number `fullEntry`. */
  ofCache(fullEntry: number): Slot {
    return this.at(this.workingCount + fullEntry);
  }

  /** The entry number of a cache slot. */
  entryOf(slot: Slot): number {
    return slot.index - this.workingCount;
  }

  isWorking(slot: Slot): boolean {
    return slot.index < this.workingCount;
  }

  firstEmpty(): Slot | undefined {
    return this.phases.empty === 0 ? undefined : this.slots.find((slot) => slot.phase === 'empty');
  }

  /** The slot in which the expert is in use, being loaded or being cancelled, if there is one. */
  holding(expert: ExpertId): Slot | undefined {
    return this.slotByExpert.get(expertKey(expert));
  }

  /** Moves the slot into the phase; `content`: its expert from now on. */
  enter(slot: Slot, phase: SlotPhase, content: ExpertId = slot): void {
    if (this.isWorking(slot)) {
      this.phases[slot.phase] -= 1;
      this.phases[phase] += 1;
    }
    slot.phase = phase;
    slot.layer = content.layer;
    slot.expert = content.expert;
    if (phase !== 'loaded' && phase !== 'cancelling') slot.lower = 'missing';
    this.noteLoading(slot);
  }

  /** The slot's lower slices are in this state from now on. */
  setLower(slot: Slot, lower: LowerSlices): void {
    slot.lower = lower;
    this.noteLoading(slot);
  }

  /** Marks whether the expert in the slot is in use. */
  markInUse(slot: Slot, inUse: boolean): void {
    const key = expertKey(slot);
    assertInvariant(
      !this.alone || !inUse || !this.slotByExpert.has(key),
      () => `expert (layer expert) ${key} is in one slot.`,
    );
    if (inUse) this.slotByExpert.set(key, slot);
    else if (this.slotByExpert.get(key) === slot) this.slotByExpert.delete(key);
  }

  /** True if an execute waits for the load in the slot. In a slot that loads lower slices, those that need no more are not waiting any more. */
  isAwaited(slot: Slot): boolean {
    if (!this.loading.has(slot)) return false;
    return slot.phase === 'loading' ? isSlotPinned(slot) : [...slot.attached].some(({ waiting }) => waiting.length > 0);
  }

  private noteLoading(slot: Slot): void {
    if (slot.phase === 'loading' || (slot.phase === 'loaded' && slot.lower === 'loading')) this.loading.add(slot);
    else this.loading.delete(slot);
  }

  waitedLoads(): WaitedLoad[] {
    return [...this.loading].flatMap((slot) => {
      const tickets = [...slot.attached].flatMap(({ waiting }) => waiting.map(({ ticket }) => ticket));
      if (tickets.length === 0) return [];
      return [{ slot: slot.index, state: stateOfParts((part) => slot.parts[part].from !== 'storage'), tickets }];
    });
  }
}

/** True if an execute waits for the slot's expert or runs it. */
export function isSlotPinned(slot: Slot): boolean {
  for (const expectation of slot.attached) if (isPinned(expectation)) return true;
  return false;
}

/** The load of the slot's parts. */
export function loadOf({ index, layer, expert, parts, urgent }: Slot): SlotLoad {
  return { slot: index, layer, expert, parts, urgent };
}
