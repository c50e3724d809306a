/**
 * The cache of slices that one sequence imagines (SliceMoE, section 4.1): one for all layers, with a capacity in bytes. It depends on nothing but the
 * sequence's own steps; a real cache may hold other slices.
 */
import { assertInvariant } from '../../base/errors/assert-invariant.js';
import { displaceFor, sliceBytes, type HeldSlices, type Slice, type SlicedCapacity } from './displace-slices.js';
import { StepNumbers } from './step-numbers.js';

export interface CacheShape extends SlicedCapacity {
  readonly layers: number;
  /** Experts of a layer. */
  readonly experts: number;
}

/** Slices by the number of their expert (LogicalCache.numberOf), the one that was used longest ago first. */
export type CacheContents = Readonly<Record<Slice, readonly number[]>>;

const NOT_LISTED = 0;

/** The numbers 0 to count - 1, each listed or not, in the order of their use: a ring with one more place, which is its beginning and end. */
class UseOrder {
  constructor(
    private readonly numbers: StepNumbers,
    private readonly first: number,
    private readonly count: number,
  ) {}

  /** Numbers that an order of so many needs. */
  static size(count: number): number {
    return 2 * (count + 1);
  }

  has(item: number): boolean {
    return this.link(item, 0) !== NOT_LISTED;
  }

  /** The item that was used longest ago, or null. */
  get oldest(): number | null {
    return this.after(this.count);
  }

  /** The next younger item, or null. */
  after(item: number): number | null {
    const next = this.link(item, 0);
    return next === NOT_LISTED || next - 1 === this.count ? null : next - 1;
  }

  /** Lists the item as the youngest one. */
  use(item: number): void {
    if (this.has(item)) this.remove(item);
    const youngest = this.link(this.count, 1) === NOT_LISTED ? this.count : this.link(this.count, 1) - 1;
    this.join(youngest, item);
    this.join(item, this.count);
  }

  remove(item: number): void {
    this.join(this.link(item, 1) - 1, this.link(item, 0) - 1);
    this.numbers.set(this.first + 2 * item, NOT_LISTED);
    this.numbers.set(this.first + 2 * item + 1, NOT_LISTED);
  }

  private link(item: number, direction: 0 | 1): number {
    return this.numbers.get(this.first + 2 * item + direction);
  }

  private join(older: number, younger: number): void {
    this.numbers.set(this.first + 2 * older, younger + 1);
    this.numbers.set(this.first + 2 * younger + 1, older + 1);
  }
}

export class LogicalCache implements HeldSlices {
  private readonly orders: Readonly<Record<Slice, UseOrder>>;
  /** The places of the two sums of bytes that slices take. */
  private readonly bytesAt: Readonly<Record<Slice, number>>;

  constructor(
    readonly shape: CacheShape,
    private readonly numbers = StepNumbers.zeros(LogicalCache.numbers(shape.layers * shape.experts)),
  ) {
    const count = shape.layers * shape.experts;
    const size = UseOrder.size(count);
    this.orders = { upper: new UseOrder(numbers, 0, count), lower: new UseOrder(numbers, size, count) };
    this.bytesAt = { upper: 2 * size, lower: 2 * size + 1 };
  }

  /** Bytes of memory of a cache of this shape. */
  static bytes({ layers, experts }: CacheShape): number {
    return LogicalCache.numbers(layers * experts) * Float64Array.BYTES_PER_ELEMENT;
  }

  private static numbers(count: number): number {
    return 2 * UseOrder.size(count) + 2;
  }

  numberOf(layer: number, expert: number): number {
    return layer * this.shape.experts + expert;
  }

  get usedBytes(): number {
    return this.bytes('upper') + this.bytes('lower');
  }

  bytes(slice: Slice): number {
    return this.numbers.get(this.bytesAt[slice]);
  }

  get contents(): CacheContents {
    return { upper: [...this.byUse('upper')], lower: [...this.byUse('lower')] };
  }

  holds(expert: number, slice: Slice): boolean {
    return this.orders[slice].has(expert);
  }

  /** The slice is used: a held one becomes the youngest, another one is kept if there may be room for it. */
  use(expert: number, slice: Slice): void {
    if (this.holds(expert, slice) || this.makeRoom(expert, slice)) this.orders[slice].use(expert);
  }

  /** Puts slices into an empty cache, which has room for them. */
  fill({ upper, lower }: CacheContents): void {
    assertInvariant(this.usedBytes === 0, 'a logical cache is filled once.');
    for (const expert of upper) this.use(expert, 'upper');
    for (const expert of lower) this.use(expert, 'lower');
  }

  beginStep(): number {
    return this.numbers.beginStep();
  }

  cutBack(step: number): void {
    this.numbers.cutBack(step);
  }

  forgetBefore(step: number): void {
    this.numbers.forgetBefore(step);
  }

  fork(): LogicalCache {
    return new LogicalCache(this.shape, this.numbers.fork());
  }

  *byUse(slice: Slice): Generator<number> {
    for (let item = this.orders[slice].oldest; item !== null; item = this.orders[slice].after(item)) yield item;
  }

  /** Returns false if the slice is not kept; then nothing leaves. */
  private makeRoom(expert: number, slice: Slice): boolean {
    const leaving = displaceFor(this, this.shape, { slice, expert });
    if (leaving === null) return false;
    for (const { slice: kind, expert: gone } of leaving) {
      this.orders[kind].remove(gone);
      this.numbers.add(this.bytesAt[kind], -sliceBytes(this.shape, kind));
    }
    this.numbers.add(this.bytesAt[slice], sliceBytes(this.shape, slice));
    return true;
  }
}
