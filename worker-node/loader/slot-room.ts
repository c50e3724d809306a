import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import type { CacheDecisions, ExpertDecisions, SliceDecisions } from './cache-decisions.js';
import { type Expectation, type Expectations, isPinned, compareProgress } from './expectations.js';
import type { MainProgress } from './main-progress.js';
import type { Slot, SlotTable } from './slot-table.js';

/** Working slots that a worker must have to make progress. */
const LEAST_WORKING = 1;

/** The schedule's actions for a slot that makes room. */
export interface SlotYielding {
  /** Gives the slot's memory back to the device. Nobody may use the slot's expert. */
  letGo(slot: Slot): void;
  /** Drops the expert in the slot, or its load; the expectations of that expert wait for another slot. */
  displace(slot: Slot): void;
}

/**
 * Chooses the slots that make room: for an execute without a slot, or for others that want memory of the same device, such as the rows of
 * sequences. The schedule carries out the choice.
 */
export class SlotRoom {
  private readonly sliced: SliceDecisions | null;
  private readonly experts: ExpertDecisions | null;
  private yieldedSlots = 0;

  constructor(
    private readonly slots: SlotTable,
    private readonly expectations: Expectations,
    private readonly progress: MainProgress,
    cache: CacheDecisions | null,
  ) {
    this.sliced = cache?.keeps === 'slices' ? cache : null;
    this.experts = cache?.keeps === 'experts' ? cache : null;
  }

  /** Number of executes without a slot, beyond those that an empty slot or a slot with a cancelled load will serve. */
  missingSlots(): number {
    return this.expectations.needyCount - this.slots.workingIn('empty') - this.slots.workingIn('cancelling');
  }

  /** Number of expectations without a slot that should get one, beyond those that such slots will serve. */
  missingForAll(): number {
    return this.expectations.loadableCount - this.slots.workingIn('empty') - this.slots.workingIn('cancelling');
  }

  /** Working slots whose expectations may make room, the best first. */
  victims(which: 'all' | 'of other layers'): Slot[] {
    return this.victimsAmong(this.slots.working, which);
  }

  /** Working slots with an expert that main doubts, and nothing else expects. */
  get doubted(): Slot[] {
    return this.slots.working.filter(
      ({ phase, attached }) =>
        (phase === 'loading' || phase === 'loaded') &&
        attached.size > 0 &&
        [...attached].every((expectation) => expectation.isDoubted && !isPinned(expectation)),
    );
  }

  /** Slots that have yielded their memory, working ones first. */
  get absent(): number[] {
    return this.slots.slots.filter(({ phase }) => phase === 'absent').map(({ index }) => index);
  }

  /** Number of slots that could still yield their memory, perhaps not at once. A sliced cache counts as slots of as many bytes. */
  get spare(): number {
    const { slots, working } = this.slots;
    const own = this.sliced === null ? slots : working;
    return own.length - this.absent.length - LEAST_WORKING + (this.sliced?.lendable ?? 0);
  }

  /** Number of slots that have yielded their memory so far; those that took it again count, too. */
  get yielded(): number {
    return this.yieldedSlots;
  }

  /**
   * Yields the memory of this many slots, as far as possible now. Cached experts go first, the least used before others; then empty working
   * slots; then experts that are only predicted. These go even if they are predicted for the rows that want the memory: otherwise those rows
   * would wait for themselves. Loads under way are not touched, because whoever expects the expert would load it again at once. The caller asks
   * again if it needs more. `spareOnly`: nothing is dropped.
   */
  yieldSlots(slots: number, schedule: SlotYielding, spareOnly = false): void {
    for (let left = slots; left > 0; left -= 1) {
      if (!this.yieldSlot(schedule, spareOnly)) return;
      this.yieldedSlots += 1;
    }
  }

  private yieldSlot(schedule: SlotYielding, spareOnly: boolean): boolean {
    if (spareOnly) return giveUp(this.spareSlot(), schedule);
    for (;;) {
      if (this.sliced?.lend() === true || giveUp(this.idleSlot(), schedule)) return true;
      const victim = this.announcedSlot();
      if (victim === null) return false;
      schedule.displace(victim);
      if (this.slots.isWorking(victim)) return giveUp(victim, schedule);
    }
  }

  /** A sliced cache takes the memory of so many slots again. */
  takeBack(slots: number): void {
    this.sliced?.takeBack(slots);
  }

  /** Slots that should take their memory again when it is free: all working ones, and cache slots until `cacheSlots` of them have memory. */
  returning(cacheSlots: number): number[] {
    const isWorking = (slot: number): boolean => this.slots.isWorking(this.slots.at(slot));
    const working = this.absent.filter(isWorking);
    return [...working, ...this.cacheAbsent.slice(0, Math.max(0, cacheSlots - this.cachePresent))];
  }

  /** Number of cache slots that have their memory. */
  get cachePresent(): number {
    return this.slots.slots.length - this.slots.working.length - this.cacheAbsent.length;
  }

  /** The cache slots that have yielded their memory. */
  get cacheAbsent(): number[] {
    return this.absent.filter((slot) => !this.slots.isWorking(this.slots.at(slot)));
  }

  /** The slot has its memory again. */
  memoryTaken(slot: Slot): void {
    assertInvariant(slot.phase === 'absent', () => `slot ${slot.index} had given its memory back.`);
    this.slots.enter(slot, 'empty');
    if (!this.slots.isWorking(slot)) this.experts?.restoreFull(this.slots.entryOf(slot));
  }

  /** True if the slot belongs to the cache and its expert is loaded. */
  keeps(index: number): boolean {
    const slot = this.slots.at(index);
    return slot.phase === 'loaded' && !this.slots.isWorking(slot);
  }

  /** True if more than LEAST_WORKING working slots have memory and do not wait for the end of a cancelled load. */
  private get canSpareWorking(): boolean {
    const gone = this.slots.workingIn('absent') + this.slots.workingIn('cancelling');
    return this.slots.working.length - gone > LEAST_WORKING;
  }

  /** Slots of the cache whose expert is only expected and has its lower slices, the least needed first. */
  lowerVictims(): Slot[] {
    const mayLose = (slot: Slot): boolean => slot.phase === 'loaded' && slot.lower === 'loaded' && slot.use !== null;
    return this.victimsAmong(this.slots.slots.slice(this.slots.working.length).filter(mayLose), 'all');
  }

  private victimsAmong(slots: readonly Slot[], which: 'all' | 'of other layers'): Slot[] {
    const mayGo = (expectation: Expectation): boolean =>
      !isPinned(expectation) && (which === 'all' || !this.progress.isAtMain(expectation));
    return leastNeeded(slots, mayGo, (sequence) => this.progress.lastExecute(sequence));
  }

  /** The slot of an expert that nobody has requested yet. Null: there is none. */
  private announcedSlot(): Slot | null {
    const mayYield = (slot: Slot): boolean =>
      slot.phase === 'loaded' && slot.lower !== 'loading' && (this.canSpareWorking || !this.slots.isWorking(slot));
    return this.victimsAmong(this.slots.slots.filter(mayYield), 'all')[0] ?? null;
  }

  /** A slot of the cache that holds nothing. */
  private spareSlot(): Slot | null {
    const entry = this.experts?.retireFree() ?? null;
    return entry === null ? null : this.idleOf(entry);
  }

  private idleSlot(): Slot | null {
    const entry = this.experts?.retireFull() ?? null;
    if (entry !== null) return this.idleOf(entry);
    if (!this.canSpareWorking) return null;
    return this.slots.working.findLast(({ phase }) => phase === 'empty') ?? null;
  }

  /** The slot of an entry that has been taken out of use. */
  private idleOf(entry: number): Slot {
    const slot = this.slots.ofCache(entry);
    const isIdle = slot.attached.size === 0 && (slot.phase === 'empty' || slot.phase === 'loaded');
    assertInvariant(isIdle, () => `nobody uses slot ${slot.index}, whose entry is free.`);
    return slot;
  }
}

/** False: there is no slot. */
function giveUp(slot: Slot | null, schedule: SlotYielding): boolean {
  if (slot !== null) schedule.letGo(slot);
  return slot !== null;
}

/**
 * The slots that may be taken from their expectations, the least needed first. A slot is needed as much as the most urgent of its expectations.
 * `mayGo`: true if one expectation may lose its slot. `lastExecute`: a larger number means that the sequence executed more recently.
 */
function leastNeeded(
  slots: readonly Slot[],
  mayGo: (expectation: Expectation) => boolean,
  lastExecute: (sequence: number) => number,
): Slot[] {
  const order = (left: Expectation, right: Expectation): number => compareNeed(left, right, lastExecute);
  return slots
    .filter(({ phase }) => phase !== 'cancelling')
    .flatMap((slot) => {
      const expected = [...slot.attached];
      const [first, ...others] = expected;
      if (first === undefined || !expected.every(mayGo)) return [];
      return [{ slot, reason: others.reduce((most, other) => (order(other, most) < 0 ? other : most), first) }];
    })
    .sort((left, right) => order(right.reason, left.reason))
    .map(({ slot }) => slot);
}

/**
 * Sorts expectations so that the one that should keep its slot comes first: experts between two mini-batches before predictions; then sequences
 * that executed more recently; then the layer that main reaches first.
 */
function compareNeed(left: Expectation, right: Expectation, lastExecute: (sequence: number) => number): number {
  const held = (expectation: Expectation): number => (expectation.claim === 'held' ? 1 : 0);
  return (
    held(right) - held(left) ||
    lastExecute(right.pass.sequence) - lastExecute(left.pass.sequence) ||
    compareProgress(left, right) ||
    left.order - right.order
  );
}
