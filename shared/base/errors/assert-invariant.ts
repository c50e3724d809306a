import { OdmoeError } from './odmoe-error.js';

/**
 * What the code holds to be true, whatever comes from outside. Where it is not, the state is not what the code believes: the work ends with
 * INTERNAL, and no answer is made from it. `what`: the belief that was broken, as a sentence.
 */
export function assertInvariant(condition: boolean, what: string | (() => string)): asserts condition {
  if (condition) return;
  const broken = typeof what === 'string' ? what : what();
  throw new OdmoeError('INTERNAL', `An invariant of odmoe is broken: ${broken} Please report this with the log.`);
}

/** The value, which is there. Throws INTERNAL as assertInvariant does. */
export function requirePresent<T>(value: T | undefined | null, what: string | (() => string)): T {
  assertInvariant(value !== undefined && value !== null, what);
  return value;
}
