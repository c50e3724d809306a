import { assertInvariant, requirePresent } from '../../shared/base/errors/assert-invariant.js';
import type { CacheDecisions, CacheUse, CachedPart } from './cache-decisions.js';
import type { PartlyLoadedState } from '../../shared/decisions/caching/load-times.js';
import { expertKey, isPinned, type Expectation } from './expectations.js';
import type { SlotLoad } from './slot-events.js';

/** absent: its memory has been given to somebody else. */
export type SlotPhase = 'empty' | 'loading' | 'cancelling' | 'loaded' | 'absent';

/** One expert at a time. */
export interface Slot {
  readonly index: number;
  phase: SlotPhase;
  layer: number;
  expert: number;
  /** What has a claim on its expert. A loaded expert without any is one that the cache keeps. */
  readonly attached: Set<Expectation>;
  /** Executions under way, in the order in which they were started. */
  readonly running: Expectation[];
  /** The cache's part in this use of the expert; null without a cache, and when nothing is attached to it. */
  use: CacheUse | null;
  /** The load was told that main waits for it. */
  urgent: boolean;
}

/** What of the expert was in memory when its load began, and the executes that wait for it. */
export interface WaitedLoad {
  slot: number;
  state: PartlyLoadedState;
  tickets: number[];
}

/** Slots that are there only for full experts of the cache, and what decides about them. */
export interface SlotCache {
  readonly slots: number;
  readonly decisions: CacheDecisions;
}

/**
 * The slots of a worker: those that it works with, any expert in any of them, and behind them those of the cache's full experts.
 * Keeps count of what is in which phase; what may be done when is SlotSchedule's to know.
 */
export class SlotTable {
  readonly slots: readonly Slot[];
  private readonly workingCount: number;
  private readonly phases: Record<SlotPhase, number>;
  private readonly loading = new Set<Slot>();
  /** Slots in use, by their expert. Without a cache two slots may hold the same one: then the last. */
  private readonly ownHolding = new Map<string, Slot>();

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
      layer: 0,
      expert: 0,
      use: null,
      urgent: false,
      attached: new Set<Expectation>(),
      running: [],
    }));
  }

  /** Working slots in so many phases. */
  workingIn(phase: SlotPhase): number {
    return this.phases[phase];
  }

  get working(): readonly Slot[] {
    return this.slots.slice(0, this.workingCount);
  }

  at(index: number): Slot {
    return requirePresent(this.slots[index], () => `slot ${index} is one of ${this.slots.length}.`);
  }

  /** The slot of the cache's full expert number `fullEntry`. */
  ofCache(fullEntry: number): Slot {
    return this.at(this.workingCount + fullEntry);
  }

  /** The full entry that a slot of the cache is. */
  entryOf(slot: Slot): number {
    return slot.index - this.workingCount;
  }

  isWorking(slot: Slot): boolean {
    return slot.index < this.workingCount;
  }

  firstEmpty(): Slot | undefined {
    return this.phases.empty === 0 ? undefined : this.slots.find((slot) => slot.phase === 'empty');
  }

  /** The slot in which the expert is being loaded, executed or kept from being so, if there is one. */
  holding(expert: { layer: number; expert: number }): Slot | undefined {
    return this.ownHolding.get(expertKey(expert));
  }

  /** Moves the slot into the phase; `content`: with this expert. */
  enter(slot: Slot, phase: SlotPhase, content: { layer: number; expert: number } = slot): void {
    if (this.isWorking(slot)) {
      this.phases[slot.phase] -= 1;
      this.phases[phase] += 1;
    }
    slot.phase = phase;
    slot.layer = content.layer;
    slot.expert = content.expert;
    if (phase === 'loading') this.loading.add(slot);
    else this.loading.delete(slot);
  }

  /** The expert in the slot is in use from now on, or no more. */
  markInUse(slot: Slot, inUse: boolean): void {
    const key = expertKey(slot);
    assertInvariant(
      !this.alone || !inUse || !this.ownHolding.has(key),
      () => `expert (layer expert) ${key} is in one slot.`,
    );
    if (inUse) this.ownHolding.set(key, slot);
    else if (this.ownHolding.get(key) === slot) this.ownHolding.delete(key);
  }

  waitedLoads(): WaitedLoad[] {
    return [...this.loading].flatMap((slot) => {
      const tickets = [...slot.attached].flatMap(({ waiting }) => waiting.map(({ ticket }) => ticket));
      if (tickets.length === 0) return [];
      const state = slot.use?.state ?? 'missing';
      return state === 'full' ? [] : [{ slot: slot.index, state, tickets }];
    });
  }
}

/** Work stands on what is in the slot. */
export function isSlotPinned(slot: Slot): boolean {
  for (const expectation of slot.attached) if (isPinned(expectation)) return true;
  return false;
}

const FROM_STORAGE: CachedPart = { from: 'storage', entry: -1 };

/** How the slot's expert is to be loaded. */
export function loadOf({ index, layer, expert, use, urgent }: Slot): SlotLoad {
  const { exponents, signMantissa } = use ?? { exponents: FROM_STORAGE, signMantissa: FROM_STORAGE };
  return { slot: index, layer, expert, exponents, signMantissa, urgent };
}
