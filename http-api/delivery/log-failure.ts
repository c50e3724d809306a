import type { FastifyRequest } from 'fastify';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { logNames } from '../requests/request-record.js';

/** What a request ended with that has failed. A defect says where; what clients do wrong is of interest to them. */
export function logFailure(log: Logger, request: FastifyRequest, thrown: unknown, isClientGone: boolean): void {
  const error = toOdmoeError(thrown);
  const { code } = error;
  request.account?.failed(isClientGone && code !== 'INTERNAL' ? 'CANCELLED' : code);
  const names = logNames(request);
  if (code === 'INTERNAL') {
    const stack = thrown instanceof Error ? thrown.stack : undefined;
    log.error('a defect ended an HTTP request', { ...names, error, stack });
  } else if (isClientGone) log.debug('the client of an HTTP request went away', names);
  else if (error.kind.httpStatus >= 500) log.warn('an HTTP request failed', { ...names, error });
  else log.debug('an HTTP request was refused', { ...names, code });
}
