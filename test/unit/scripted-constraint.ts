import type { OutputConstraint } from '../../engine/output-format/output-constraint.js';
import type { SteppedWork } from '../../shared/base/runtime/work-steps.js';

type Allowed = (answer: readonly number[], room: number) => Uint8Array | null;

/** A constraint that allows what the test says, after a step of work. */
export function scriptedConstraint(
  allowed: Allowed,
  isClosed: OutputConstraint['isClosed'] = () => false,
): OutputConstraint {
  return {
    *allowed(answer, room): SteppedWork<Uint8Array | null> {
      yield;
      return allowed(answer, room);
    },
    isClosed,
  };
}
