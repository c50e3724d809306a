import { isErrorCode, OdmoeError, toOdmoeError } from '../shared/base/errors/odmoe-error.js';

/** An error of the addon has the property `code`; an error without it is a defect. */
function fromAddon(thrown: unknown): OdmoeError {
  if (thrown instanceof Error && !(thrown instanceof OdmoeError) && 'code' in thrown && isErrorCode(thrown.code)) {
    // An error for which the addon has no code may be the system's refusal of memory or of a thread.
    if (thrown.code === 'INTERNAL') return toOdmoeError(thrown);
    return new OdmoeError(thrown.code, thrown.message, { cause: thrown });
  }
  return toOdmoeError(thrown);
}

/** Calls the addon; errors that it throws become OdmoeErrors. */
export function calling<Result>(call: () => Result): Result {
  try {
    return call();
  } catch (error) {
    throw fromAddon(error);
  }
}

/** Calls the addon and waits; errors that it throws or rejects with become OdmoeErrors. */
export async function awaiting<Result>(call: () => Promise<Result>): Promise<Result> {
  try {
    return await call();
  } catch (error) {
    throw fromAddon(error);
  }
}
