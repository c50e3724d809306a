import type { OdmoeError } from '../../../shared/errors/odmoe-error.js';
import type { Dialect } from '../delivery/dialect.js';
import { framed, type MessageEvent } from './message-events.js';

const TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  503: 'overloaded_error',
  504: 'timeout_error',
};

export const ANTHROPIC: Dialect = {
  errorBody: anthropicError,
  streamType: 'text/event-stream; charset=utf-8',
  keepAlive: () => framed({ type: 'ping' }),
  errorEvent: (error, requestId) => framed(anthropicError(error, requestId)),
};

function anthropicError(error: OdmoeError, requestId: string): MessageEvent {
  const { httpStatus } = error.kind;
  const type = TYPES[httpStatus] ?? (httpStatus < 500 ? 'invalid_request_error' : 'api_error');
  return { type: 'error', error: { type, message: error.message }, request_id: requestId };
}
