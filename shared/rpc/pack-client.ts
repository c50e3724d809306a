/** A connection to a daemon that holds a pack or some of its experts. */
import { Metadata } from '@grpc/grpc-js';
import type { NodeSettings } from '../config/node-settings.js';
import type { ErrorCode } from '../errors/index.js';
import { callOver } from './calls.js';
import { openChannel, type Channel } from './channel.js';
import { PACK_DESCRIBE, PACK_MANIFEST, PACK_READ, type RpcMethod } from './codecs.js';
import { PACK_PIECES_HELD_LIMIT, PACK_WINDOW_BYTES, PIECE_IDLE_LIMIT_MS } from './limits.js';
import type { PackDescription, PackPiece, ReadPackRequest } from './messages.js';
import { readReplies } from './reply-reader.js';
import { fromServiceError } from './rpc-errors.js';

/** What it means that the connection broke: the peer may be any daemon. */
const LOST: ErrorCode = 'WORKER_LOST';

const raw = (bytes: Buffer): Buffer => bytes;

/**
 * Whom pieces of a pack can be asked for. Rejects with the peer's code, or WORKER_LOST when the connection fails, after which it
 * is of no more use, or when nothing comes for the idle limit.
 */
export interface PackSource {
  describe(timeoutMs: number): Promise<PackDescription>;
  /** The pieces come at the pace of the loop over them; leaving it ends the call. */
  read(request: ReadPackRequest, signal: AbortSignal): AsyncIterable<Uint8Array>;
  manifest(packDigest: string, signal: AbortSignal): AsyncIterable<Uint8Array>;
  close(): void;
}

/** `idleLimitMs`: the longest wait for a next piece. */
export function openPackSource(
  address: string,
  network: NodeSettings['network'],
  idleLimitMs = PIECE_IDLE_LIMIT_MS,
): PackSource {
  const channel = openChannel(address, network, PACK_WINDOW_BYTES);
  return {
    describe: async (timeoutMs) => {
      try {
        return await callOver(channel, PACK_DESCRIBE, {}, timeoutMs);
      } catch (thrown) {
        throw fromServiceError(thrown, LOST, address);
      }
    },
    read: (request, signal) => pieces(channel, address, PACK_READ, request, signal, idleLimitMs),
    manifest: (packDigest, signal) => pieces(channel, address, PACK_MANIFEST, { packDigest }, signal, idleLimitMs),
    close: () => {
      channel.close();
    },
  };
}

async function* pieces<Request>(
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
  signal.addEventListener('abort', cancel, { once: true });
  if (signal.aborted) cancel();
  try {
    for await (const message of readReplies(call, address, LOST, PACK_PIECES_HELD_LIMIT, idleLimitMs)) {
      yield method.reply.decode(message).bytes;
    }
  } finally {
    signal.removeEventListener('abort', cancel);
    call.cancel();
  }
}
