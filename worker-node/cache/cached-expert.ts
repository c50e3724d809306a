import type { Pool } from '../../shared/settings/cache-policies.js';
import {
  stateOfParts,
  type CompressionState,
  type PartlyLoadedState,
} from '../../shared/decisions/caching/load-times.js';
import {
  ENTRY_KINDS,
  perEntryKind,
  POOL_ENTRIES,
  type EntryKind,
  type PerEntryKind,
} from '../../shared/decisions/caching/pool-capacities.js';
import { NO_ENTRY, type EntryNumbers } from './entry-numbers.js';

/** One entry of an expert. The expert has taken it (not NO_ENTRY), and it is complete or a load still fills it. */
export interface HeldEntry {
  entry: number;
  filled: boolean;
  /** Uses that load from this entry or, if it is a full entry, execute it. */
  readers: number;
}

/** An expert that holds entries, or whose pool is about to give it entries. */
export class CachedExpert {
  readonly holdings: PerEntryKind<HeldEntry> = perEntryKind(() => ({ entry: NO_ENTRY, filled: false, readers: 0 }));
  /** Null: it lost its place in a pool; it is dropped when no use of it is left. */
  pool: Pool | null = null;
  /** Uses that have not ended. */
  pins = 0;
  /** For the policy Marking: used since the phase began. */
  marked = true;
  lastUse = 0;

  constructor(
    readonly expert: number,
    /** Later arrivals have higher numbers. */
    readonly arrival: number,
  ) {}

  get state(): CompressionState {
    return this.holdings.full.filled ? 'full' : this.stateOfParts;
  }

  /** Kinds of entries that the pool requires and this expert does not have. */
  lacking(pool: Pool): EntryKind[] {
    return POOL_ENTRIES[pool].filter((kind) => this.holdings[kind].entry === NO_ENTRY);
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

  /** Gives back complete entries that no use reads and that its pool does not grant. */
  dropSuperfluous(entries: EntryNumbers): void {
    for (const kind of ENTRY_KINDS) {
      const { filled, readers } = this.holdings[kind];
      const granted = this.pool !== null && POOL_ENTRIES[this.pool].includes(kind);
      if (filled && readers === 0 && !granted) this.drop(kind, entries);
    }
  }

  /** The pool that fits this expert's complete parts; the full entry is ignored. */
  poolOfParts(): Pool | null {
    const { stateOfParts } = this;
    return stateOfParts === 'missing' ? null : stateOfParts;
  }

  private get stateOfParts(): PartlyLoadedState {
    return stateOfParts((part) => this.holdings[part].filled);
  }
}
