import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** True for an error of this code whose message fits. */
export function isOdmoe(code: OdmoeError['code'], message: RegExp): (thrown: unknown) => boolean {
  return (thrown) => thrown instanceof OdmoeError && thrown.code === code && message.test(thrown.message);
}
