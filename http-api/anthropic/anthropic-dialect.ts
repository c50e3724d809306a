import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
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

export const ANTHROPIC = {
  errorBody: anthropicError,
  streamType: 'text/event-stream; charset=utf-8',
  keepAlive: () => framed({ type: 'ping' }),
  errorEvent: (error: OdmoeError, requestId: string) => framed(anthropicError(error, requestId)),
} satisfies Dialect;

/** The body of an error, and its event's data. */
interface ErrorBody extends MessageEvent {
  error: { type: string; message: string };
  request_id: string;
}

function anthropicError(error: OdmoeError, requestId: string): ErrorBody {
  const { httpStatus } = error.kind;
  const type = TYPES[httpStatus] ?? (httpStatus < 500 ? 'invalid_request_error' : 'api_error');
  return { type: 'error', error: { type, message: error.message }, request_id: requestId };
}
