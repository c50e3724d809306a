/** The form of errors for HTTP clients: pure functions of the one registry. */
import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';

/** Errors after which a retry helps, each with the seconds to wait. */
const RETRY_AFTER_S: Partial<Record<ErrorCode, number>> = {
  QUEUE_FULL: 5,
  NO_MAIN: 5,
  NO_WORKERS: 5,
  WORKER_LOST: 2,
  SHADOW_LOST: 2,
  DEVICE_LOST: 10,
  STORAGE_FAILED: 10,
};

/** Statuses below 500 after which the same request may succeed later. */
const PASSING_STATUSES: ReadonlySet<number> = new Set([408, 409, 429]);
/** Codes with another status after which the same request may succeed. An INTERNAL error may come from a part that restarts. */
const PASSING_CODES: ReadonlySet<ErrorCode> = new Set(['INTERNAL', 'TIMEOUT']);

/** Codes that clients know by OpenAI's names. */
const OPENAI_CODES: Partial<Record<ErrorCode, string>> = {
  PROMPT_TOO_LONG: 'context_length_exceeded',
  MODEL_UNKNOWN: 'model_not_found',
  UNAUTHORIZED: 'invalid_api_key',
};

const OPENAI_TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  429: 'rate_limit_error',
};

/** Headers of an answer with an error status: whether to retry, when, and with which credentials. */
export function errorHeaders(error: OdmoeError): Record<string, string> {
  const retryAfterS = RETRY_AFTER_S[error.code];
  if (retryAfterS !== undefined) return { 'retry-after': String(retryAfterS) };
  if (error.code === 'UNAUTHORIZED') return { 'www-authenticate': 'Bearer', 'x-should-retry': 'false' };
  return mayPass(error) ? {} : { 'x-should-retry': 'false' };
}

function mayPass({ code, kind }: OdmoeError): boolean {
  return PASSING_STATUSES.has(kind.httpStatus) || PASSING_CODES.has(code);
}

/** The code in the form of HTTP clients. */
export function clientCode(code: ErrorCode): string {
  return OPENAI_CODES[code] ?? code.toLowerCase();
}

/** OpenAI's form; paths that belong to no dialect use it, too. */
export function openAiErrorBody(error: OdmoeError): object {
  const { httpStatus } = error.kind;
  const fallback = httpStatus < 500 ? 'invalid_request_error' : 'server_error';
  return {
    error: {
      message: error.message,
      type: OPENAI_TYPES[httpStatus] ?? fallback,
      param: error.field,
      code: clientCode(error.code),
    },
  };
}
