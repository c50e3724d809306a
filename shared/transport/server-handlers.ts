/** Handlers of single calls for grpc-js. */
import type { Metadata, ServerDuplexStream, ServerUnaryCall, ServerWritableStream, sendUnaryData } from '@grpc/grpc-js';
import type { Logger } from '../base/log/logger.js';
import { hostOf } from '../wire/addresses.js';
import { answerCall, type AnswerLimits, answerReplies } from './answer-calls.js';
import type { PeerContext } from './peer-context.js';
import { toServiceError } from './rpc-errors.js';
import type { ServedMethod } from './served-methods.js';

export type RawServerStream = ServerDuplexStream<Buffer, Buffer>;

/** The caller. Its host is empty if it is already gone. */
export function peerContextOf(call: { getPeer(): string }): PeerContext {
  return { host: hostOf(call.getPeer()), caller: null };
}

/** `metadata`: of the reply. */
export function grpcCall(
  served: Extract<ServedMethod, { shape: 'call' }>,
  log: Logger,
  metadata: () => Metadata | null,
): (call: ServerUnaryCall<Buffer, Buffer>, callback: sendUnaryData<Buffer>) => void {
  return (call, callback) => {
    const initial = metadata();
    if (initial !== null) call.sendMetadata(initial);
    answerCall(served, call.request, { peer: peerContextOf(call), name: call.getPeer() }, log).then(
      (reply) => callback(null, reply),
      (thrown: unknown) => callback(toServiceError(thrown)),
    );
  };
}

export function grpcReplies(
  served: Extract<ServedMethod, { shape: 'replies' }>,
  limits: AnswerLimits,
): (call: ServerWritableStream<Buffer, Buffer>) => void {
  return (call) => {
    const gone = new AbortController();
    call.on('cancelled', () => gone.abort());
    const caller = {
      peer: peerContextOf(call),
      name: call.getPeer(),
      send: (reply: Buffer, taken: () => void) => call.write(reply, taken),
      unread: () => call.writableLength,
    };
    answerReplies(served, call.request, caller, gone.signal, limits).then(
      () => call.end(),
      (thrown: unknown) => call.emit('error', toServiceError(thrown)),
    );
  };
}
