/** Handlers of single calls for grpc-js: they decode, run and encode, and report every fault as an OdmoeError. */
import type { Metadata, ServerDuplexStream, ServerUnaryCall, ServerWritableStream, sendUnaryData } from '@grpc/grpc-js';
import { OdmoeError, toOdmoeError } from '../base/errors/odmoe-error.js';
import type { ErrorCode } from '../base/errors/registry.js';
import type { Logger } from '../base/log/logger.js';
import { waitForPeer } from '../base/runtime/peer-wait.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { hostOf } from '../wire/addresses.js';
import type { RpcMethod } from '../wire/codecs.js';
import type { PeerContext } from './peer-context.js';
import { toServiceError } from './rpc-errors.js';
import { onAbort } from '../base/runtime/living.js';

export type RawServerStream = ServerDuplexStream<Buffer, Buffer>;

/** The caller. Its host is empty if it is already gone. */
export function peerContextOf(call: { getPeer(): string }): PeerContext {
  return { host: hostOf(call.getPeer()) };
}

/** One request, one reply. */
export function answerOnce<Request, Reply>(
  method: RpcMethod<Request, Reply>,
  log: Logger,
  run: (request: Request, peer: PeerContext) => Promise<Reply>,
  metadata: () => Metadata | null = () => null,
): (call: ServerUnaryCall<Buffer, Buffer>, callback: sendUnaryData<Buffer>) => void {
  const answer = async (call: ServerUnaryCall<Buffer, Buffer>): Promise<Buffer> =>
    method.reply.encode(await run(method.request.decode(call.request), peerContextOf(call)));
  return (call, callback) => {
    const told = metadata();
    if (told !== null) call.sendMetadata(told);
    answer(call).then(
      (reply) => {
        callback(null, reply);
      },
      (thrown: unknown) => {
        logFault(log, method.path, call.getPeer(), thrown);
        callback(toServiceError(thrown));
      },
    );
  };
}

export interface StreamingLimits {
  runtime: Runtime;
  /** A client that reads no reply for this long is given up. */
  slowReaderLimitMs: number;
  /** Most replies that wait for the client before the next one is made. */
  repliesHeld: number;
  /** Errors for which this method logs no warning. */
  everyday: ReadonlySet<ErrorCode>;
}

/** One request, many replies at the client's pace. The signal aborts when the client goes away. */
export function answerStreaming<Request, Reply>(
  method: RpcMethod<Request, Reply>,
  log: Logger,
  run: (request: Request, signal: AbortSignal, peer: PeerContext) => AsyncIterable<Reply>,
  limits: StreamingLimits,
): (call: ServerWritableStream<Buffer, Buffer>) => void {
  const answer = async (call: ServerWritableStream<Buffer, Buffer>, signal: AbortSignal): Promise<void> => {
    let taken: () => void = () => undefined;
    for await (const reply of run(method.request.decode(call.request), signal, peerContextOf(call))) {
      if (signal.aborted) return;
      call.write(method.reply.encode(reply), () => {
        taken();
      });
      while (call.writableLength >= limits.repliesHeld && !signal.aborted) {
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
        logFault(log, method.path, call.getPeer(), thrown, limits.everyday);
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
      const what = `the client has taken none of the replies that wait for it for ${limitMs} ms, so its call was ended`;
      settle(new OdmoeError('TIMEOUT', `${what}: ask again and read the answer as it comes`));
    });
    void taken.then(go);
    const leave = onAbort(signal, go);
  });
}

const NONE: ReadonlySet<ErrorCode> = new Set();

/** Logs a defect of ours as an error, and a fault of the caller as a warning. */
function logFault(
  log: Logger,
  method: string,
  peer: string,
  thrown: unknown,
  everyday: ReadonlySet<ErrorCode> = NONE,
): void {
  const error = toOdmoeError(thrown);
  const fields = { method, peer, error };
  if (error.code === 'INTERNAL') log.error('a call failed', { ...fields, stack: error.stack });
  else if (everyday.has(error.code)) log.debug('a call was answered with an error', fields);
  else log.warn('a call was answered with an error', fields);
}
