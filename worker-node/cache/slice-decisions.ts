import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import type { CompressionState } from '../../shared/decisions/caching/load-times.js';
import {
  displaceFor,
  displaceTo,
  type HeldSlices,
  type Slice,
  type SliceOf,
  type SliceSizes,
} from '../../shared/decisions/slices/displace-slices.js';
import { UPPER_PART } from '../../shared/model/expert-parts.js';
import type { PoolCapacities } from '../../shared/settings/cache-policies.js';
import type { CacheUse, LowerMemory, PlacedExpert, SliceDecisions, UseLoaded } from '../loader/cache-decisions.js';
import { LOADED_PARTS } from '../loader/slot-table.js';
import { lowerPlacesBytes } from '../../engine/planning/plan-sliced-cache.js';
import type { SliceMemory } from './slice-memory.js';

export interface SlicedCacheShape extends SliceSizes {
  /** Experts of a layer. */
  readonly experts: number;
  /** The worker loads lower slices at all. */
  readonly hasLower: boolean;
  /** Memory for so many lower slices stays free for executions whose lower slices the cache does not keep. */
  readonly lowerPlaces: number;
}

/** An expert with its upper slices in a slot of the cache, or with a load that brings them. */
interface SlicedExpert {
  readonly layer: number;
  readonly expert: number;
  readonly entry: number;
  /** Uses that have not ended. */
  pins: number;
  /** 'kept' lower slices stay when the use ends, 'passing' ones go. */
  lower: 'none' | 'kept' | 'passing';
  hasUpper: boolean;
  hasLower: boolean;
}

/** One cache of slices over all layers of a worker, by the rule of displace-slices.ts. Experts in use stay, with all that they have. */
export class SlicesInSlots implements SliceDecisions, HeldSlices {
  readonly keeps = 'slices';
  /** By the expert's number; the one that was used longest ago first. */
  private readonly orders: Readonly<Record<Slice, Map<number, SlicedExpert>>> = { upper: new Map(), lower: new Map() };
  /** Uses of experts in slots of the cache. */
  private readonly uses = new Map<CacheUse, SlicedExpert>();
  private layers: ReadonlySet<number> = new Set();
  private passing = 0;
  private left: number[] = [];

  constructor(
    private readonly shape: SlicedCacheShape,
    private readonly memory: SliceMemory,
    private readonly onActivated: (layer: number, expert: number, tokens: number) => void = () => undefined,
  ) {}

  /** Bytes that kept slices may take now. */
  get capacityBytes(): number {
    return Math.max(0, this.memory.bytes - this.placesBytes);
  }

  setCapacities(capacities: ReadonlyMap<number, PoolCapacities>): void {
    this.layers = new Set(capacities.keys());
    const unserved = [...this.orders.upper.values()].filter((held) => !this.layers.has(held.layer) && held.pins === 0);
    for (const held of unserved) this.drop(held);
  }

  activated(layer: number, expert: number, tokens: number): void {
    if (this.layers.has(layer)) this.onActivated(layer, expert, tokens);
  }

  acquire(layer: number, experts: readonly number[]): CacheUse[] {
    // Those that are here must not leave for the others.
    const present = experts.flatMap((expert) => this.find(layer, expert) ?? []);
    for (const held of present) held.pins += 1;
    const uses = experts.map((expert) => this.begin(layer, expert));
    for (const held of present) held.pins -= 1;
    return uses;
  }

  loaded(use: CacheUse, { loaded }: UseLoaded): void {
    const held = this.uses.get(use);
    if (held === undefined) return;
    held.hasUpper = loaded;
    if (!loaded) this.drop(held);
  }

  endUse(use: CacheUse): void {
    const held = this.uses.get(use);
    if (held === undefined) return;
    this.uses.delete(use);
    held.pins -= 1;
    if (held.pins > 0 || !held.hasUpper) return;
    if (!this.layers.has(held.layer)) this.drop(held);
    else if (held.lower === 'passing') this.dropLower(held);
  }

  isInSlot(layer: number, expert: number): boolean {
    return this.find(layer, expert)?.hasUpper === true;
  }

  cached(): PlacedExpert[] {
    return [...this.orders.upper.values()].flatMap((held) => {
      const { layer, expert } = held;
      const state = this.stateOf(held);
      return state === 'missing' ? [] : [{ layer, expert, pool: state, state }];
    });
  }

  /** Experts of the layer whose upper slices are cached, or will be when their load has ended. Rising. */
  cachedOf(layer: number): number[] {
    const experts = [...this.orders.upper.values()].filter((held) => held.layer === layer);
    return experts.map(({ expert }) => expert).sort((left, right) => left - right);
  }

  hasLower(use: CacheUse): boolean {
    return this.uses.get(use)?.hasLower === true;
  }

  takeLower(use: CacheUse): LowerMemory {
    const held = this.heldOf(use);
    if (held.lower === 'none') return this.addLower(held);
    if (held.lower === 'kept') this.touch('lower', held);
    return 'taken';
  }

  lowerLoaded(use: CacheUse, loaded: boolean): void {
    const held = this.uses.get(use);
    if (held === undefined) return;
    if (loaded) held.hasLower = true;
    else this.dropLower(held);
  }

  giveUpLower(use: CacheUse): void {
    this.dropLower(this.heldOf(use));
  }

  takeLeft(): number[] {
    const { left } = this;
    this.left = [];
    return left;
  }

  lend(): boolean {
    const target = this.memory.heldBytes - this.lentBytes;
    if (target < 0) return false;
    const leaving = displaceTo(this, this.shape, Math.max(0, target - this.placesBytes), this.isPinned);
    if (leaving === null) return false;
    this.leave(leaving);
    this.memory.lendTo(target);
    return true;
  }

  get lendable(): number {
    return this.lentBytes === 0 ? 0 : Math.floor(this.memory.heldBytes / this.lentBytes);
  }

  takeBack(lends: number): void {
    this.memory.takeBack(lends * this.lentBytes);
  }

  holds(expert: number, slice: Slice): boolean {
    return this.orders[slice].has(expert);
  }

  bytes(slice: Slice): number {
    return this.orders[slice].size * (slice === 'upper' ? this.shape.upperBytes : this.shape.lowerBytes);
  }

  byUse(slice: Slice): Iterable<number> {
    return this.orders[slice].keys();
  }

  private readonly isPinned = (expert: number): boolean => (this.orders.upper.get(expert)?.pins ?? 0) > 0;

  private get placesBytes(): number {
    return lowerPlacesBytes(this.shape);
  }

  /** Bytes of one `lend`: those of a working slot. */
  private get lentBytes(): number {
    return this.shape.upperBytes + this.shape.lowerBytes;
  }

  private begin(layer: number, expert: number): CacheUse {
    const held = this.find(layer, expert) ?? this.place(layer, expert);
    const use: CacheUse = {
      layer,
      expert,
      state: held === null ? 'missing' : this.stateOf(held),
      fullEntry: held?.entry ?? null,
      parts: LOADED_PARTS.all,
    };
    if (held === null) return use;
    held.pins += 1;
    this.touch('upper', held);
    this.uses.set(use, held);
    return use;
  }

  /** Null: it is not cached, because the experts in use leave no room. */
  private place(layer: number, expert: number): SlicedExpert | null {
    if (!this.layers.has(layer)) return null;
    const room = { ...this.shape, capacityBytes: this.capacityBytes };
    const leaving = displaceFor(this, room, { slice: 'upper', expert: this.numberOf(layer, expert) }, this.isPinned);
    if (leaving === null) return null;
    this.leave(leaving);
    const entry = this.memory.takeEntry();
    if (entry === null) return null;
    const held: SlicedExpert = { layer, expert, entry, pins: 0, lower: 'none', hasUpper: false, hasLower: false };
    this.touch('upper', held);
    return held;
  }

  private addLower(held: SlicedExpert): LowerMemory {
    const room = { ...this.shape, capacityBytes: this.capacityBytes };
    const leaving = displaceFor(this, room, { slice: 'lower', expert: this.numberOfHeld(held) }, this.isPinned);
    if (leaving === null && this.passing >= this.shape.lowerPlaces) return 'noRoom';
    this.leave(leaving ?? []);
    const refusal = this.takeLowerMemory(held);
    if (refusal !== null) return refusal;
    if (leaving === null) {
      held.lower = 'passing';
      this.passing += 1;
    } else {
      held.lower = 'kept';
      this.touch('lower', held);
    }
    return 'taken';
  }

  /** Slices that nobody uses leave as long as the device refuses memory for those that are wanted now. */
  private takeLowerMemory(held: SlicedExpert): OdmoeError | null {
    for (;;) {
      const refusal = this.memory.takeLower(held.entry);
      if (refusal === null) return null;
      const fewerBytes = this.bytes('upper') + this.bytes('lower') - 1;
      const leaving = displaceTo(this, this.shape, fewerBytes, this.isPinned);
      if (leaving === null) return refusal;
      this.leave(leaving);
    }
  }

  private leave(leaving: readonly SliceOf[]): void {
    for (const { slice, expert } of leaving) {
      const held = requirePresent(this.orders[slice].get(expert), 'a slice that leaves is held.');
      if (slice === 'lower') this.dropLower(held);
      else this.drop(held);
    }
  }

  private drop(held: SlicedExpert): void {
    this.dropLower(held);
    this.orders.upper.delete(this.numberOfHeld(held));
    held.hasUpper = false;
    this.memory.giveEntry(held.entry);
    this.left.push(held.entry);
  }

  private dropLower(held: SlicedExpert): void {
    if (held.lower === 'passing') this.passing -= 1;
    this.orders.lower.delete(this.numberOfHeld(held));
    held.lower = 'none';
    held.hasLower = false;
    this.memory.giveLower(held.entry);
  }

  private touch(slice: Slice, held: SlicedExpert): void {
    const number = this.numberOfHeld(held);
    this.orders[slice].delete(number);
    this.orders[slice].set(number, held);
  }

  /** 'full': nothing that the worker would load is missing. */
  private stateOf({ hasUpper, hasLower }: SlicedExpert): Exclude<CompressionState, 'compressed'> {
    if (!hasUpper) return 'missing';
    return hasLower || !this.shape.hasLower ? 'full' : UPPER_PART;
  }

  private find(layer: number, expert: number): SlicedExpert | undefined {
    return this.orders.upper.get(this.numberOf(layer, expert));
  }

  private numberOfHeld({ layer, expert }: SlicedExpert): number {
    return this.numberOf(layer, expert);
  }

  private numberOf(layer: number, expert: number): number {
    return layer * this.shape.experts + expert;
  }

  private heldOf(use: CacheUse): SlicedExpert {
    return requirePresent(this.uses.get(use), () => `expert ${use.expert} of layer ${use.layer} is in the cache.`);
  }
}
