import { isErrorCode, OdmoeError, toOdmoeError } from '../shared/base/errors/odmoe-error.js';

/**
 * The OdmoeError for what the addon throws or rejects with. An error of the addon has the property `code`; an error without it is a defect.
 * The addon calls this for each of its errors.
 */
export function fromAddon(thrown: unknown): OdmoeError {
  if (thrown instanceof Error && !(thrown instanceof OdmoeError) && 'code' in thrown && isErrorCode(thrown.code)) {
    // An error for which the addon has no code may be the system's refusal of memory or of a thread.
    if (thrown.code === 'INTERNAL') return toOdmoeError(thrown);
    return new OdmoeError(thrown.code, thrown.message, { cause: thrown });
  }
  return toOdmoeError(thrown);
}
