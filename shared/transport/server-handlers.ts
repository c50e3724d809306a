/** Handlers of single calls for grpc-js. */
import type { Metadata, ServerDuplexStream, ServerUnaryCall, ServerWritableStream, sendUnaryData } from '@grpc/grpc-js';
import type { OdmoeError } from '../base/errors/odmoe-error.js';
import type { Logger } from '../base/log/logger.js';
import { hostOf } from '../wire/addresses.js';
import { answerCall, type AnswerLimits, answerReplies } from './answer-calls.js';
import type { PeerContext } from './peer-context.js';
import { toServiceError } from './rpc-errors.js';
import type { ServedMethod } from './served-methods.js';
import type { CertifiedCaller } from './trust/peer-role.js';

export type RawServerStream = ServerDuplexStream<Buffer, Buffer>;

/** The part of a call of grpc-js that knows the certificate of its connection. */
export type AuthenticatedCall = Pick<ServerUnaryCall<Buffer, Buffer>, 'getAuthContext'>;

/** The peer that the caller's certificate names; null: the cluster has no authority. Throws CANCELLED if the caller has gone. */
export type CallerOf = (call: AuthenticatedCall) => CertifiedCaller | null;

/** The caller. Its host is empty if it is already gone. Throws CANCELLED if its certificate is needed and it has gone. */
export function peerContextOf(call: AuthenticatedCall & { getPeer(): string }, callerOf: CallerOf): PeerContext {
  return { host: hostOf(call.getPeer()), caller: callerOf(call) };
}

/** `metadata`: of the reply. */
export function grpcCall(
  served: Extract<ServedMethod, { shape: 'call' }>,
  log: Logger,
  callerOf: CallerOf,
  metadata: () => Metadata | null,
): (call: ServerUnaryCall<Buffer, Buffer>, callback: sendUnaryData<Buffer>) => void {
  return (call, callback) => {
    const initial = metadata();
    if (initial !== null) call.sendMetadata(initial);
    const answer = async (): Promise<Buffer> => {
      const peer = peerContextOf(call, callerOf);
      return answerCall(served, call.request, { peer, name: call.getPeer() }, log);
    };
    answer().then(
      (reply) => callback(null, reply),
      (thrown: unknown) => callback(toServiceError(thrown)),
    );
  };
}

/** Each running call with many replies: ends it with the reason. The peer that its certificate names; null: the cluster has no authority. */
export type OpenReplies = Map<(reason: OdmoeError) => void, CertifiedCaller | null>;

export function grpcReplies(
  served: Extract<ServedMethod, { shape: 'replies' }>,
  limits: AnswerLimits,
  callerOf: CallerOf,
  open: OpenReplies,
): (call: ServerWritableStream<Buffer, Buffer>) => void {
  return (call) => {
    const gone = new AbortController();
    let refused: OdmoeError | null = null;
    const end = (reason: OdmoeError): void => {
      refused = reason;
      gone.abort();
    };
    call.on('cancelled', () => gone.abort());
    const answer = async (): Promise<void> => {
      const peer = peerContextOf(call, callerOf);
      open.set(end, peer.caller);
      const caller = {
        peer,
        name: call.getPeer(),
        send: (reply: Buffer, taken: () => void) => call.write(reply, taken),
        unread: () => call.writableLength,
      };
      await answerReplies(served, call.request, caller, gone.signal, limits);
      if (refused !== null) throw refused;
    };
    answer()
      .finally(() => open.delete(end))
      .then(
        () => call.end(),
        (thrown: unknown) => call.emit('error', toServiceError(thrown)),
      );
  };
}
