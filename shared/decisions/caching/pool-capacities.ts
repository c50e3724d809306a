import { type Pool, POOLS, type PoolCapacities } from '../../settings/cache-policies.js';
import { type Part, PARTS, perPart, recordOf } from '../../model/expert-parts.js';
import { OdmoeError } from '../../base/errors/odmoe-error.js';

/** The values are made in the order of the pools. */
export function perPool<T>(valueOf: (pool: Pool) => T): Record<Pool, T> {
  return recordOf(POOLS, valueOf);
}

export const NO_CAPACITIES: PoolCapacities = perPool(() => 0);

/** Device memory of the cache comes in entries: expert slots, and entries that hold one stored part of an expert. */
export type EntryKind = 'full' | Part;
export const ENTRY_KINDS: readonly EntryKind[] = ['full', ...PARTS];
export type PerEntryKind<T> = Readonly<Record<EntryKind, T>>;

export function perEntryKind<T>(valueOf: (kind: EntryKind) => T): PerEntryKind<T> {
  return recordOf(ENTRY_KINDS, valueOf);
}

/** The entries that an expert of each pool takes. */
export const POOL_ENTRIES: Readonly<Record<Pool, readonly EntryKind[]>> = {
  full: ['full'],
  compressed: PARTS,
  ...perPart((part) => [part]),
};

/** Numbers of entries for these capacities. */
export function entriesOf(capacities: PoolCapacities): PerEntryKind<number> {
  return perEntryKind((kind) => sumOfPools((pool) => (POOL_ENTRIES[pool].includes(kind) ? capacities[pool] : 0)));
}

/** Bytes that an expert of the pool takes. */
export function bytesInPool(pool: Pool, entryBytes: PerEntryKind<number>): number {
  return POOL_ENTRIES[pool].reduce((sum, kind) => sum + entryBytes[kind], 0);
}

/** Bytes of pools with these numbers of experts. */
export function poolBytes(capacities: PoolCapacities, entryBytes: PerEntryKind<number>): number {
  return sumOfPools((pool) => capacities[pool] * bytesInPool(pool, entryBytes));
}

/** Number of experts that are in memory with stored parts only. */
export function countInParts(counts: PoolCapacities): number {
  return sumOfPools((pool) => (pool === 'full' ? 0 : counts[pool]));
}

export function addCapacities(left: PoolCapacities, right: PoolCapacities): PoolCapacities {
  return perPool((pool) => left[pool] + right[pool]);
}

export function sumOfPools(valueOf: (pool: Pool) => number): number {
  return POOLS.reduce((sum, pool) => sum + valueOf(pool), 0);
}

/** Spreads the total capacities over the layers. Layers differ by at most one expert of a pool, and no layer holds more experts than exist. */
export function spreadCapacities(
  totals: PoolCapacities,
  layers: readonly number[],
  experts: number,
): Map<number, PoolCapacities> {
  const spread = new Map<number, PoolCapacities>();
  // Remainders of the four pools go to different layers, as long as there are enough layers.
  const starts = perPool(() => 0);
  let start = 0;
  for (const pool of POOLS) {
    starts[pool] = start;
    start += layers.length === 0 ? 0 : totals[pool] % layers.length;
  }
  for (const [index, layer] of layers.entries()) {
    let room = experts;
    const shareOf = (pool: Pool): number => {
      const place = (index - (starts[pool] % layers.length) + layers.length) % layers.length;
      const extra = place < totals[pool] % layers.length ? 1 : 0;
      const share = Math.min(room, Math.floor(totals[pool] / layers.length) + extra);
      room -= share;
      return share;
    };
    spread.set(layer, perPool(shareOf));
  }
  return spread;
}

/** @throws INTERNAL unless every capacity is a whole number of at least 0 */
export function checkCapacities(capacities: PoolCapacities): void {
  for (const pool of POOLS) {
    if (!Number.isSafeInteger(capacities[pool]) || capacities[pool] < 0)
      throw new OdmoeError('INTERNAL', `a ${pool} pool of ${capacities[pool]} experts`);
  }
}
