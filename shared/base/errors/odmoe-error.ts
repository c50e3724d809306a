import { pathOf, systemFailure } from './system-failure.js';
import { ERROR_KINDS, type ErrorCode, type ErrorKind } from './registry.js';

/** The only error class that odmoe throws on purpose. `message` says what happened, to what, and what to do. */
export class OdmoeError extends Error {
  override readonly name = 'OdmoeError';
  /** The field of a request that is wrong, as its sender names it ("messages[2].role"); null: none, or not known. */
  readonly field: string | null;

  constructor(
    readonly code: ErrorCode,
    message: string,
    options?: { cause?: unknown; field?: string },
  ) {
    super(message, options);
    this.field = options?.field ?? null;
  }

  get kind(): ErrorKind {
    return ERROR_KINDS[this.code];
  }
}

export function isErrorCode(value: unknown): value is ErrorCode {
  return typeof value === 'string' && Object.hasOwn(ERROR_KINDS, value);
}

/** Anything thrown, as an OdmoeError: what the system refuses in words, and what is not known is a defect and becomes INTERNAL. */
export function toOdmoeError(thrown: unknown): OdmoeError {
  if (thrown instanceof OdmoeError) return thrown;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  const failure = systemFailure(thrown);
  if (failure === null) return new OdmoeError('INTERNAL', message, { cause: thrown });
  const path = pathOf(thrown);
  const subject = path === null ? '' : `${path}: `;
  return new OdmoeError(failure.code, `${subject}${failure.what} (${message}); ${failure.advice}`, { cause: thrown });
}
