import { requirePresent } from '../../shared/base/errors/assert-invariant.js';

/** The middle one of the sorted values, or the mean of the two in the middle. There is at least one value. Pure. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((left, right) => left - right);
  const below = requirePresent(sorted[Math.floor((sorted.length - 1) / 2)], 'a median is of some values');
  const above = requirePresent(sorted[Math.ceil((sorted.length - 1) / 2)], 'a median is of some values');
  return (below + above) / 2;
}
