import { toOdmoeError } from '../../../shared/errors/odmoe-error.js';
import type { Logger } from '../../../shared/log/logger.js';

/** What a request ended with that has failed. A defect says where; what clients do wrong is of interest to them. */
export function logFailure(log: Logger, requestId: string, thrown: unknown, isClientGone: boolean): void {
  const error = toOdmoeError(thrown);
  if (error.code === 'INTERNAL') {
    const stack = thrown instanceof Error ? thrown.stack : undefined;
    log.error('a defect ended an HTTP request', { request: requestId, error, stack });
  } else if (isClientGone) log.info('the client of an HTTP request went away', { request: requestId });
  else if (error.kind.httpStatus >= 500) log.warn('an HTTP request failed', { request: requestId, error });
  else log.debug('an HTTP request was refused', { request: requestId, code: error.code });
}
