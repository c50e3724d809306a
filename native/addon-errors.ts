import { isErrorCode, OdmoeError, toOdmoeError } from '../shared/base/errors/odmoe-error.js';

/** What the addon throws carries `code`; anything else that comes out of it is a defect. */
function fromAddon(thrown: unknown): OdmoeError {
  if (thrown instanceof Error && !(thrown instanceof OdmoeError) && 'code' in thrown && isErrorCode(thrown.code)) {
    // What it has no code for may be the system's refusal of memory or a thread.
    if (thrown.code === 'INTERNAL') return toOdmoeError(thrown);
    return new OdmoeError(thrown.code, thrown.message, { cause: thrown });
  }
  return toOdmoeError(thrown);
}

/** Calls the addon; what it throws becomes an OdmoeError. */
export function calling<Result>(call: () => Result): Result {
  try {
    return call();
  } catch (error) {
    throw fromAddon(error);
  }
}

/** Calls the addon and waits; what it throws or rejects with becomes an OdmoeError. */
export async function awaiting<Result>(call: () => Promise<Result>): Promise<Result> {
  try {
    return await call();
  } catch (error) {
    throw fromAddon(error);
  }
}
