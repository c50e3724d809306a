import { compareProgress, type Expectation } from './expectations.js';
import type { Slot } from './slot-table.js';

/**
 * The slots that may be taken from what expects their expert, the one needed least first. A slot is needed as much as the most
 * urgent of its expectations. `mayGo`: of one expectation. `lastExecute`: of a sequence, larger for one that executed more recently.
 */
export function leastNeeded(
  slots: readonly Slot[],
  mayGo: (expectation: Expectation) => boolean,
  lastExecute: (sequence: number) => number,
): Slot[] {
  const order = (left: Expectation, right: Expectation): number => compareNeed(left, right, lastExecute);
  return slots
    .filter(({ phase }) => phase !== 'cancelling')
    .flatMap((slot) => {
      const expected = [...slot.attached];
      const [first, ...others] = expected;
      if (first === undefined || !expected.every(mayGo)) return [];
      return [{ slot, reason: others.reduce((most, other) => (order(other, most) < 0 ? other : most), first) }];
    })
    .sort((left, right) => order(right.reason, left.reason))
    .map(({ slot }) => slot);
}

/**
 * What is to keep its slot comes first: experts between two mini-batches before predictions; sequences that have executed more
 * recently; then the layer that main reaches next.
 */
function compareNeed(left: Expectation, right: Expectation, lastExecute: (sequence: number) => number): number {
  const held = (expectation: Expectation): number => (expectation.claim === 'held' ? 1 : 0);
  return (
    held(right) - held(left) ||
    lastExecute(right.pass.sequence) - lastExecute(left.pass.sequence) ||
    compareProgress(left, right) ||
    left.order - right.order
  );
}
