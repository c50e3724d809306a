import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import type { CacheDecisions } from './cache-decisions.js';
import { type Expectation, type Expectations, isPinned, compareProgress } from './expectations.js';
import type { MainProgress } from './main-progress.js';
import type { Slot, SlotTable } from './slot-table.js';

/** Working slots that a worker needs to get on at all. */
const LEAST_WORKING = 1;

/** What the schedule does with a slot that makes room. */
export interface SlotYielding {
  /** Its memory goes back to the device: nothing is in it that anybody uses. */
  letGo(slot: Slot): void;
  /** What is in it or on its way there goes; who expected it waits for another slot. */
  displace(slot: Slot): void;
}

/**
 * Which slots make room: for an execute that has none, and for others that want memory of the same device, as the rows of sequences do. It
 * chooses; the schedule carries out what is chosen.
 */
export class SlotRoom {
  constructor(
    private readonly slots: SlotTable,
    private readonly expectations: Expectations,
    private readonly progress: MainProgress,
    private readonly cache: CacheDecisions | null,
  ) {}

  /** Executes without a slot, beyond those that a free slot or one being emptied will serve. */
  missingSlots(): number {
    return this.expectations.needyCount - this.slots.workingIn('empty') - this.slots.workingIn('cancelling');
  }

  /** Working slots whose expectations may make room, best first. */
  victims(which: 'all' | 'of other layers'): Slot[] {
    return this.victimsAmong(this.slots.working, which);
  }

  /** Slots that have given their memory back, working ones first. */
  get absent(): number[] {
    return this.slots.slots.filter(({ phase }) => phase === 'absent').map(({ index }) => index);
  }

  /** How many slots could still give theirs back, though perhaps not at once. */
  get spare(): number {
    return this.slots.slots.length - this.absent.length - LEAST_WORKING;
  }

  /**
   * Lets go of the memory of so many slots, as far as that can be now. What the cache keeps goes first, the experts that are used least before
   * others; then empty working slots; then experts that are only foretold, even for the rows that want the memory: those would wait for
   * themselves. What is being loaded is left alone: whoever expects it would load it again at once. Who wants the memory asks again.
   * `spareOnly`: nothing is dropped for it.
   */
  giveMemoryBack(slots: number, schedule: SlotYielding, spareOnly = false): void {
    for (let left = slots; left > 0; left -= 1) {
      const slot = spareOnly ? this.spareSlot() : (this.idleSlot() ?? this.foretoldSlot(schedule));
      if (slot === null) return;
      schedule.letGo(slot);
    }
  }

  /** Slots that are to take their memory again when it is free: all working ones, and of the cache's as many as it then has `cacheSlots`. */
  returning(cacheSlots: number): number[] {
    const isWorking = (slot: number): boolean => this.slots.isWorking(this.slots.at(slot));
    const working = this.absent.filter(isWorking);
    const ofCache = this.absent.filter((slot) => !isWorking(slot));
    return [...working, ...ofCache.slice(0, Math.max(0, cacheSlots - this.cachePresent))];
  }

  /** Slots of the cache that have their memory. */
  get cachePresent(): number {
    const { absent, slots } = this;
    const gone = absent.filter((slot) => !slots.isWorking(slots.at(slot))).length;
    return slots.slots.length - slots.working.length - gone;
  }

  /** The slot has its memory again. */
  memoryTaken(slot: Slot): void {
    assertInvariant(slot.phase === 'absent', () => `slot ${slot.index} had given its memory back.`);
    this.slots.enter(slot, 'empty');
    if (!this.slots.isWorking(slot)) this.cache?.restoreFull(this.slots.entryOf(slot));
  }

  /** The slot is one of the cache's, and its expert is there. */
  keeps(index: number): boolean {
    const slot = this.slots.at(index);
    return slot.phase === 'loaded' && !this.slots.isWorking(slot);
  }

  /** More working slots have memory, or are about to be empty, than there must be. */
  private get canSpareWorking(): boolean {
    const gone = this.slots.workingIn('absent') + this.slots.workingIn('cancelling');
    return this.slots.working.length - gone > LEAST_WORKING;
  }

  private victimsAmong(slots: readonly Slot[], which: 'all' | 'of other layers'): Slot[] {
    const mayGo = (expectation: Expectation): boolean =>
      !isPinned(expectation) && (which === 'all' || !this.progress.isAtMain(expectation));
    return leastNeeded(slots, mayGo, (sequence) => this.progress.lastExecute(sequence));
  }

  /** A slot whose expert nobody has asked for yet, without it from now on. Null: there is none. */
  private foretoldSlot(schedule: SlotYielding): Slot | null {
    const mayYield = (slot: Slot): boolean =>
      slot.phase === 'loaded' && (this.canSpareWorking || !this.slots.isWorking(slot));
    const [victim] = this.victimsAmong(this.slots.slots.filter(mayYield), 'all');
    if (victim === undefined) return null;
    schedule.displace(victim);
    return this.slots.isWorking(victim) ? victim : this.idleSlot();
  }

  /** Of the cache, with nothing in it. */
  private spareSlot(): Slot | null {
    const entry = this.cache?.retireFree() ?? null;
    return entry === null ? null : this.idleOf(entry);
  }

  private idleSlot(): Slot | null {
    const entry = this.cache?.retireFull() ?? null;
    if (entry !== null) return this.idleOf(entry);
    if (!this.canSpareWorking) return null;
    return this.slots.working.findLast(({ phase }) => phase === 'empty') ?? null;
  }

  /** Of an entry that has been taken out of use. */
  private idleOf(entry: number): Slot {
    const slot = this.slots.ofCache(entry);
    const isIdle = slot.attached.size === 0 && (slot.phase === 'empty' || slot.phase === 'loaded');
    assertInvariant(isIdle, () => `nobody uses slot ${slot.index}, whose entry is free.`);
    return slot;
  }
}

/**
 * The slots that may be taken from what expects their expert, the one needed least first. A slot is needed as much as the most
 * urgent of its expectations. `mayGo`: of one expectation. `lastExecute`: of a sequence, larger for one that executed more recently.
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
 * What is to keep its slot comes first: experts between two mini-batches before predictions; sequences that have executed more
 * recently; then the layer that main reaches next.
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
