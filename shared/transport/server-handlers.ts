/** Handlers of single calls for grpc-js: they decode, run and encode, and report every fault as an OdmoeError. */
import type { Metadata, ServerDuplexStream, ServerUnaryCall, ServerWritableStream, sendUnaryData } from '@grpc/grpc-js';
import type { OdmoeError } from '../base/errors/odmoe-error.js';
import type { Logger } from '../base/log/logger.js';
import { waitForPeer } from '../base/runtime/peer-wait.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { hostOf } from '../wire/addresses.js';
import type { PeerContext } from './peer-context.js';
import { logFault, readsTooSlowly, toServiceError } from './rpc-errors.js';
import type { ServedMethod } from './served-methods.js';
import { onAbort } from '../base/runtime/living.js';

export type RawServerStream = ServerDuplexStream<Buffer, Buffer>;

/** The caller. Its host is empty if it is already gone. */
export function peerContextOf(call: { getPeer(): string }): PeerContext {
  return { host: hostOf(call.getPeer()) };
}

/** One request, one reply. */
export function answerOnce(
  { method, handle }: Extract<ServedMethod, { shape: 'call' }>,
  log: Logger,
  metadata: () => Metadata | null,
): (call: ServerUnaryCall<Buffer, Buffer>, callback: sendUnaryData<Buffer>) => void {
  const answer = async (call: ServerUnaryCall<Buffer, Buffer>): Promise<Buffer> =>
    method.reply.encode(await handle(method.request.decode(call.request), peerContextOf(call)));
  return (call, callback) => {
    const initial = metadata();
    if (initial !== null) call.sendMetadata(initial);
    answer(call).then(
      (reply) => {
        callback(null, reply);
      },
      (thrown: unknown) => {
        logFault(log, method, call.getPeer(), thrown);
        callback(toServiceError(thrown));
      },
    );
  };
}

export interface StreamingLimits {
  runtime: Runtime;
  /** A client that reads no reply for this long is given up. */
  slowReaderLimitMs: number;
}

/** One request, many replies at the client's pace. The signal aborts when the client goes away. */
export function answerStreaming(
  { method, handle }: Extract<ServedMethod, { shape: 'replies' }>,
  log: Logger,
  limits: StreamingLimits,
): (call: ServerWritableStream<Buffer, Buffer>) => void {
  const answer = async (call: ServerWritableStream<Buffer, Buffer>, signal: AbortSignal): Promise<void> => {
    let taken: () => void = () => undefined;
    for await (const reply of handle(method.request.decode(call.request), signal, peerContextOf(call))) {
      if (signal.aborted) return;
      call.write(method.reply.encode(reply), () => {
        taken();
      });
      while (call.writableLength >= method.heldByServer && !signal.aborted) {
        const room = new Promise<void>((resolve) => (taken = resolve));
        await withinLimit(room, signal, limits);
      }
    }
  };
  return (call) => {
    const gone = new AbortController();
    call.on('cancelled', () => {
      gone.abort();
    });
    answer(call, gone.signal).then(
      () => {
        call.end();
      },
      (thrown: unknown) => {
        if (gone.signal.aborted) return;
        logFault(log, method, call.getPeer(), thrown);
        call.emit('error', toServiceError(thrown));
      },
    );
  };
}

/** Resolves when a reply has been read or the client is gone. Throws TIMEOUT if neither happens within limitMs. */
async function withinLimit(
  taken: Promise<void>,
  signal: AbortSignal,
  { runtime, slowReaderLimitMs: limitMs }: StreamingLimits,
): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const settle = (error: OdmoeError | null): void => {
      timer.cancel();
      leave();
      if (error === null) resolve();
      else reject(error);
    };
    const go = (): void => {
      settle(null);
    };
    const timer = waitForPeer(runtime, limitMs, () => {
      settle(readsTooSlowly(limitMs));
    });
    void taken.then(go);
    const leave = onAbort(signal, go);
  });
}
