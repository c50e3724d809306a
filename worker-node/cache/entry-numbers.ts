import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { perEntryKind, type EntryKind, type PerEntryKind } from '../../shared/decisions/caching/pool-capacities.js';

/** No entry. */
export const NO_ENTRY = -1;

/** The numbers of the free entries, by kind. */
export class EntryNumbers {
  private readonly free: PerEntryKind<number[]>;

  constructor(readonly counts: PerEntryKind<number>) {
    this.free = perEntryKind((kind) => Array.from({ length: counts[kind] }, (_, index) => counts[kind] - 1 - index));
  }

  available(kind: EntryKind): number {
    return this.free[kind].length;
  }

  /** @throws INTERNAL when no entry of the kind is free */
  take(kind: EntryKind): number {
    const entry = this.free[kind].pop();
    if (entry === undefined) throw new OdmoeError('INTERNAL', `no ${kind} entry is free`);
    return entry;
  }

  give(kind: EntryKind, entry: number): void {
    this.free[kind].push(entry);
  }
}
