import { pathOf, systemFailure } from './system-failure.js';
import { ERROR_KINDS, type ErrorCode, type ErrorKind } from './registry.js';

/** The only error class that odmoe throws on purpose. `message` gives the event, the thing concerned, and the remedy. */
export class OdmoeError extends Error {
  override readonly name = 'OdmoeError';
  /** The wrong field of a request, as its sender names it ("messages[2].role"); null: no field, or an unknown one. */
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

/** Turns anything thrown into an OdmoeError. A known refusal of the system is put into words. Anything unknown is a defect and becomes INTERNAL. */
export function toOdmoeError(thrown: unknown): OdmoeError {
  if (thrown instanceof OdmoeError) return thrown;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  const failure = systemFailure(thrown);
  if (failure === null) return new OdmoeError('INTERNAL', message, { cause: thrown });
  const path = pathOf(thrown);
  const subject = path === null ? '' : `${path}: `;
  return new OdmoeError(failure.code, `${subject}${failure.what} (${message}); ${failure.advice}`, { cause: thrown });
}
