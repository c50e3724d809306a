import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { CacheEntries } from '../../shared/decisions/caching/pool-capacities.js';

export type EntryKind = keyof CacheEntries;
export const ENTRY_KINDS = ['full', 'exponent', 'signMantissa'] as const satisfies readonly EntryKind[];

/** No entry. */
export const NO_ENTRY = -1;

/** The numbers of the free entries, by kind. */
export class EntryNumbers {
  private readonly free: Record<EntryKind, number[]>;

  constructor(readonly counts: CacheEntries) {
    const numbers = (count: number): number[] => Array.from({ length: count }, (_, index) => count - 1 - index);
    this.free = {
      full: numbers(counts.full),
      exponent: numbers(counts.exponent),
      signMantissa: numbers(counts.signMantissa),
    };
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
