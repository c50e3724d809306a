import { OdmoeError } from './odmoe-error.js';

/**
 * Checks a belief: a condition that our code must keep, whatever input arrives. If the condition is false, the state is wrong: the work ends
 * with INTERNAL, and no answer is made from that state. `what`: the broken belief, as a sentence.
 */
export function assertInvariant(condition: boolean, what: string | (() => string)): asserts condition {
  if (condition) return;
  const broken = typeof what === 'string' ? what : what();
  throw new OdmoeError('INTERNAL', `An invariant of odmoe is broken: ${broken} Please report this with the log.`);
}

/** Returns the value, which must be present. Throws INTERNAL as assertInvariant does. */
export function requirePresent<T>(value: T | undefined | null, what: string | (() => string)): T {
  assertInvariant(value !== undefined && value !== null, what);
  return value;
}
