/** A connection to a daemon that holds a pack or some of its experts. */
import { Metadata } from '@grpc/grpc-js';
import type { ErrorCode } from '../base/errors/registry.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { callOver } from './calls.js';
import { openChannel, type Channel } from './channel.js';
import { PACK_DESCRIBE, PACK_MANIFEST, PACK_READ, type RpcMethod } from '../wire/codecs.js';
import { PACK_PIECES_HELD_LIMIT, PACK_WINDOW_BYTES, PLAIN_RECEIVE_LIMIT_BYTES } from '../wire/limits.js';
import type { PackPiece } from '../wire/messages.js';
import { readReplies } from './reply-reader.js';
import { fromServiceError } from './rpc-errors.js';
import type { PackSource } from './transport.js';
import { onAbort } from '../base/runtime/living.js';

/** The error code of a broken connection. The peer may be any daemon. */
const LOST: ErrorCode = 'WORKER_LOST';

const raw = (bytes: Buffer): Buffer => bytes;

/** `idleLimitMs`: the longest wait for a next piece. */
export function openPackSource(runtime: Runtime, address: string, idleLimitMs: number): PackSource {
  const channel = openChannel(address, runtime, PACK_WINDOW_BYTES, PLAIN_RECEIVE_LIMIT_BYTES);
  return {
    describe: async (timeoutMs) => {
      try {
        return await callOver(runtime, channel, address, PACK_DESCRIBE, {}, timeoutMs);
      } catch (thrown) {
        throw fromServiceError(thrown, LOST, address);
      }
    },
    read: (request, signal) => pieces(runtime, channel, address, PACK_READ, request, signal, idleLimitMs),
    manifest: (packDigest, signal) =>
      pieces(runtime, channel, address, PACK_MANIFEST, { packDigest }, signal, idleLimitMs),
    close: () => {
      channel.close();
    },
  };
}

async function* pieces<Request>(
  runtime: Runtime,
  { client }: Channel,
  address: string,
  method: RpcMethod<Request, PackPiece>,
  request: Request,
  signal: AbortSignal,
  idleLimitMs: number,
): AsyncGenerator<Uint8Array, void, undefined> {
  const call = client.makeServerStreamRequest(method.path, raw, raw, method.request.encode(request), new Metadata());
  const cancel = (): void => {
    call.cancel();
  };
  const leave = onAbort(signal, cancel);
  if (signal.aborted) cancel();
  try {
    for await (const message of readReplies(call, address, LOST, PACK_PIECES_HELD_LIMIT, runtime, idleLimitMs)) {
      yield method.reply.decode(message).bytes;
    }
  } finally {
    leave();
    call.cancel();
  }
}
