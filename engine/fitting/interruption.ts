import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** @throws CANCELLED if the signal is aborted */
export function throwIfInterrupted(signal: AbortSignal): void {
  if (signal.aborted) throw new OdmoeError('CANCELLED', 'the work with the model was interrupted');
}
