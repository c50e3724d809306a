import { type Pool, POOLS, type PoolCapacities } from '../../settings/cache-policies.js';
import { OdmoeError } from '../../base/errors/odmoe-error.js';

export const NO_CAPACITIES: PoolCapacities = { full: 0, compressed: 0, signMantissa: 0, exponent: 0 };

/** Numbers of entries that the pools' experts need: expert slots, and entries for stored E parts and SM parts. */
export interface CacheEntries {
  full: number;
  exponent: number;
  signMantissa: number;
}

/** Entries for these capacities. A compressed expert takes an entry of exponents and one of signs and mantissas. */
export function entriesOf(capacities: PoolCapacities): CacheEntries {
  const { full, compressed, signMantissa, exponent } = capacities;
  return { full, exponent: compressed + exponent, signMantissa: compressed + signMantissa };
}

export function addCapacities(left: PoolCapacities, right: PoolCapacities): PoolCapacities {
  return {
    full: left.full + right.full,
    compressed: left.compressed + right.compressed,
    signMantissa: left.signMantissa + right.signMantissa,
    exponent: left.exponent + right.exponent,
  };
}

/** Spreads the total capacities over the layers. Layers differ by at most one expert of a pool, and no layer holds more experts than exist. */
export function spreadCapacities(
  totals: PoolCapacities,
  layers: readonly number[],
  experts: number,
): Map<number, PoolCapacities> {
  const spread = new Map<number, PoolCapacities>();
  // Remainders of the four pools go to different layers, as long as there are enough layers.
  const starts = { full: 0, compressed: 0, signMantissa: 0, exponent: 0 };
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
    const [full, compressed] = [shareOf('full'), shareOf('compressed')];
    spread.set(layer, { full, compressed, signMantissa: shareOf('signMantissa'), exponent: shareOf('exponent') });
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
