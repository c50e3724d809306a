import { Metadata, status, type ServiceError } from '@grpc/grpc-js';
import { isErrorCode, OdmoeError, toOdmoeError } from '../base/errors/odmoe-error.js';
import type { ErrorCode } from '../base/errors/registry.js';
import type { Logger } from '../base/log/logger.js';
import { printableLine } from '../base/text/printable-text.js';
import type { RpcMethod } from '../wire/codecs.js';
import type { MethodRules } from './methods.js';

/** Trailing metadata that carries an OdmoeError's code across RPC. */
export const ERROR_CODE_METADATA = 'odmoe-code';

/** Metadata of a reply to Node.Identify: the longest recent standstill of that process in ms. It may be absent. */
export const STANDSTILL_METADATA = 'odmoe-stall-ms';

/** Longest message of a gRPC status. Trailers have a size limit of their own. */
const STATUS_MESSAGE_LIMIT = 2000;

/** Refusals that carry no code of ours: they come from the door, before a connection reaches a handler. */
const REFUSALS: ReadonlyMap<status, ErrorCode> = new Map([
  [status.UNAUTHENTICATED, 'TRUST_REFUSED'],
  [status.PERMISSION_DENIED, 'NOT_ALLOWED'],
]);

/** The error that a handler gives to grpc-js, so that the caller gets the same OdmoeError. */
export function toServiceError(thrown: unknown): ServiceError {
  const error = toOdmoeError(thrown);
  const metadata = new Metadata();
  metadata.set(ERROR_CODE_METADATA, error.code);
  // The text is converted to bytes and back: a lone surrogate (the cut may leave one) would make grpc-js throw while it sends the status.
  const details = Buffer.from(error.message.slice(0, STATUS_MESSAGE_LIMIT)).toString();
  return Object.assign(new Error(details), { code: status[error.kind.grpcStatus], details, metadata });
}

/**
 * The OdmoeError that the other side sent, its words on one line: a second one could imitate words of ours. `peer`: the name of the other side.
 */
export function fromServiceError(
  thrown: unknown,
  { lostCode, servedBy }: Pick<MethodRules, 'lostCode' | 'servedBy'>,
  peer: string,
): OdmoeError {
  if (!isServiceError(thrown)) return toOdmoeError(thrown);
  const [code] = thrown.metadata.get(ERROR_CODE_METADATA);
  const details = printableLine(thrown.details);
  if (isErrorCode(code)) return new OdmoeError(code, details, { cause: thrown });
  const cause = { cause: thrown };
  if (thrown.code === status.CANCELLED) return cancelledCall(peer, cause);
  if (thrown.code === status.DEADLINE_EXCEEDED) return notInTime(peer, cause);
  if (thrown.code === status.UNIMPLEMENTED) {
    return new OdmoeError('PROTOCOL_VIOLATION', `${peer} does not serve this call: ${details}`, cause);
  }
  const refusal = REFUSALS.get(thrown.code);
  if (refusal !== undefined) return new OdmoeError(refusal, `${peer} refused this call: ${details}`, cause);
  const failure = `the connection to ${peer} failed: ${plainDetails(details)}`;
  const advice = servedBy === 'main' ? '; is main running there? odmoe doctor says what answers' : '';
  return new OdmoeError(lostCode, `${failure}${advice}`, cause);
}

/** The error for a caller that no longer waits for the peer. */
export function cancelledCall(peer: string, cause: { cause?: unknown } = {}): OdmoeError {
  return new OdmoeError('CANCELLED', `the call to ${peer} was cancelled`, cause);
}

/** The error for a failed Node.Identify or Node.Counts of the address. */
export function noDaemonAnswers(address: string, thrown: unknown): OdmoeError {
  const { message } = toOdmoeError(thrown);
  return new OdmoeError('TIMEOUT', `no daemon answers at ${address} (${message}); start it, or correct the address`, {
    cause: thrown,
  });
}

/** The error for a client that leaves the replies to its call unread. */
export function readsTooSlowly(limitMs: number): OdmoeError {
  const what = `the client has taken none of the replies that wait for it for ${limitMs} ms, so its call was ended`;
  return new OdmoeError('TIMEOUT', `${what}: ask again and read the answer as it comes`);
}

/** Logs why a call failed: a defect of ours as an error, and a fault of the caller as a warning. */
export function logFault(
  log: Logger,
  { path: method, everyday }: Pick<RpcMethod<unknown, unknown>, 'path'> & MethodRules,
  peer: string,
  thrown: unknown,
): void {
  const error = toOdmoeError(thrown);
  const fields = { method, peer, error };
  if (error.code === 'INTERNAL') log.error('a call failed', { ...fields, stack: error.stack });
  else if (everyday.has(error.code)) log.debug('a call was answered with an error', fields);
  else log.warn('a call was answered with an error', fields);
}

/** The error for a peer that has not answered within its time limit. */
export function notInTime(peer: string, cause: { cause?: unknown } = {}): OdmoeError {
  const message = `${peer} has not answered in time: it may be busy, stopped or not reachable from here`;
  return new OdmoeError('TIMEOUT', message, cause);
}

/** The system's message, without the text that grpc-js puts around it, and without its time: equal failures are told once. */
function plainDetails(details: string): string {
  return details
    .replace(/ \(\d{4}-\d\d-\d\dT[\d:.]+Z\)/, '')
    .replace(/^No connection established\. Last error: (?:Error: )?/, '')
    .replace(/\.? Resolution note: $/, '')
    .replace(/^Protocol error$/, "what answers there speaks no gRPC (main's page and HTTP API are such)")
    .replace(/^Name resolution failed for target dns:.*/, 'its host name is not known here');
}

function isServiceError(thrown: unknown): thrown is ServiceError {
  return thrown instanceof Error && 'code' in thrown && 'details' in thrown && 'metadata' in thrown;
}
