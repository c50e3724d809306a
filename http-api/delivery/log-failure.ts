import type { FastifyRequest } from 'fastify';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { logNames } from '../requests/request-record.js';

/** Logs the error that ended a request. A defect is logged with its place; clients' mistakes concern only the clients. */
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
