import type { Pool } from '../../shared/settings/cache-policies.js';
import type { CompressionState } from '../../shared/decisions/caching/load-times.js';
import { ENTRY_KINDS, NO_ENTRY, type EntryKind, type EntryNumbers } from './entry-numbers.js';

/** One entry of an expert: taken for it (not NO_ENTRY), and complete or still being filled by a load. */
export interface HeldEntry {
  entry: number;
  filled: boolean;
  /** Uses that load from it or, of a full one, execute it. */
  readers: number;
}

const NEEDED_ENTRIES: Readonly<Record<Pool, readonly EntryKind[]>> = {
  full: ['full'],
  compressed: ['exponent', 'signMantissa'],
  signMantissa: ['signMantissa'],
  exponent: ['exponent'],
};

const emptyHolding = (): HeldEntry => ({ entry: NO_ENTRY, filled: false, readers: 0 });

/** An expert that holds entries, or is in a pool that is going to grant it some. */
export class CachedExpert {
  readonly holdings: Readonly<Record<EntryKind, HeldEntry>> = {
    full: emptyHolding(),
    exponent: emptyHolding(),
    signMantissa: emptyHolding(),
  };
  /** Null: it lost its place, and is dropped when no use of it is left. */
  pool: Pool | null = null;
  /** Uses that have not ended. */
  pins = 0;
  /** Marking: used since the phase began. */
  marked = true;
  lastUse = 0;

  constructor(
    readonly expert: number,
    /** Rises with arrival. */
    readonly arrival: number,
  ) {}

  get state(): CompressionState {
    const { full, exponent, signMantissa } = this.holdings;
    if (full.filled) return 'full';
    if (exponent.filled) return signMantissa.filled ? 'compressed' : 'exponent';
    return signMantissa.filled ? 'signMantissa' : 'missing';
  }

  /** Entries that an expert of the pool has and this one has not. */
  lacking(pool: Pool): EntryKind[] {
    return NEEDED_ENTRIES[pool].filter((kind) => this.holdings[kind].entry === NO_ENTRY);
  }

  take(kind: EntryKind, entries: EntryNumbers): void {
    this.holdings[kind].entry = entries.take(kind);
  }

  drop(kind: EntryKind, entries: EntryNumbers): void {
    const holding = this.holdings[kind];
    if (holding.entry === NO_ENTRY) return;
    entries.give(kind, holding.entry);
    holding.entry = NO_ENTRY;
    holding.filled = false;
  }

  /** Gives back complete entries that nobody reads and its pool does not grant. */
  dropSuperfluous(entries: EntryNumbers): void {
    for (const kind of ENTRY_KINDS) {
      const { filled, readers } = this.holdings[kind];
      const granted = this.pool !== null && NEEDED_ENTRIES[this.pool].includes(kind);
      if (filled && readers === 0 && !granted) this.drop(kind, entries);
    }
  }

  /** The pool whose experts hold what this one has complete, other than full. */
  poolOfParts(): Pool | null {
    const { exponent, signMantissa } = this.holdings;
    if (exponent.filled) return signMantissa.filled ? 'compressed' : 'exponent';
    return signMantissa.filled ? 'signMantissa' : null;
  }
}
