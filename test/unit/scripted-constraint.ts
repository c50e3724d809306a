import type { OutputConstraint } from '../../engine/output-format/output-constraint.js';
import type { SlicedWork } from '../../shared/base/runtime/slices.js';

type Allowed = (answer: readonly number[], room: number) => Uint8Array | null;

/** A constraint that allows what the test says, after a slice of work. */
export function scriptedConstraint(
  allowed: Allowed,
  isClosed: OutputConstraint['isClosed'] = () => false,
): OutputConstraint {
  return {
    *allowed(answer, room): SlicedWork<Uint8Array | null> {
      yield;
      return allowed(answer, room);
    },
    isClosed,
  };
}
