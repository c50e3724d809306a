/** Single calls: who is there, joining, status, and a generation. */
import { Metadata, type ClientReadableStream } from '@grpc/grpc-js';
import { OdmoeError, type ErrorCode } from '../errors/index.js';
import { openChannel } from './channel.js';
import { CLUSTER_JOIN, CLUSTER_STATUS, INFERENCE_GENERATE, NODE_IDENTIFY, type RpcMethod } from './codecs.js';
import type { GenerateReply, GenerateRequest, JoinReply, NodeIdentity, StatusReply } from './messages.js';
import { atDialledAddress } from './node-status.js';
import { fromServiceError } from './rpc-errors.js';

/** A main that answers no ping for so long counts as gone while an answer is awaited. */
const GENERATE_KEEPALIVE = { keepaliveIntervalMs: 5000, keepaliveTimeoutMs: 5000 };

/** Replies held for a slow reader before the sender is made to wait. */
const REPLIES_HELD_LIMIT = 256;

/** Who answers at the address. TIMEOUT when nobody does in time, NO_MAIN when the connection fails. */
export function identifyPeer(address: string, timeoutMs: number): Promise<NodeIdentity> {
  return callOnce(address, NODE_IDENTIFY, {}, timeoutMs, 'NO_MAIN');
}

export function joinMain(address: string, identity: NodeIdentity, timeoutMs: number): Promise<JoinReply> {
  return callOnce(address, CLUSTER_JOIN, { identity }, timeoutMs, 'NO_MAIN');
}

/** `address`: main's, which it may not know itself. */
export async function fetchStatus(address: string, timeoutMs: number): Promise<StatusReply> {
  const status = await callOnce(address, CLUSTER_STATUS, {}, timeoutMs, 'NO_MAIN');
  const nodes = status.nodes.map((node) =>
    node.identity.role === 'ROLE_MAIN' ? atDialledAddress(node, address) : node,
  );
  return { ...status, nodes };
}

const raw = (bytes: Buffer): Buffer => bytes;

async function callOnce<Request, Reply>(
  address: string,
  method: RpcMethod<Request, Reply>,
  request: Request,
  timeoutMs: number,
  lostCode: ErrorCode,
): Promise<Reply> {
  const channel = openChannel(address, null);
  try {
    const bytes = await new Promise<Buffer>((resolve, reject) => {
      const options = { deadline: Date.now() + timeoutMs };
      channel.client.makeUnaryRequest(
        method.path,
        raw,
        raw,
        method.request.encode(request),
        options,
        (error, reply) => {
          if (error !== null) reject(error);
          else resolve(reply ?? Buffer.alloc(0));
        },
      );
    });
    return method.reply.decode(bytes);
  } catch (thrown) {
    throw fromServiceError(thrown, lostCode, address);
  } finally {
    channel.close();
  }
}

/**
 * Asks main for an answer. Ends after `finished`. Throws OdmoeError with main's code, NO_MAIN when the connection fails,
 * CANCELLED when the signal aborts. Leaving the loop early cancels the request at main.
 */
export async function* generate(
  address: string,
  request: GenerateRequest,
  signal?: AbortSignal,
): AsyncGenerator<GenerateReply, void, undefined> {
  const network = { ...GENERATE_KEEPALIVE, executeTimeoutMs: 0, reconnectDelayMs: 0 };
  const channel = openChannel(address, network);
  const { path, request: requestCodec, reply: replyCodec } = INFERENCE_GENERATE;
  const call = channel.client.makeServerStreamRequest(path, raw, raw, requestCodec.encode(request), new Metadata());
  const cancel = (): void => {
    call.cancel();
  };
  signal?.addEventListener('abort', cancel, { once: true });
  if (signal?.aborted === true) cancel();
  let finished = false;
  try {
    for await (const bytes of readReplies(call, address)) {
      const reply = replyCodec.decode(bytes);
      finished ||= reply.kind === 'finished';
      yield reply;
    }
    if (!finished) throw new OdmoeError('NO_MAIN', `main at ${address} ended the answer before it was finished`);
  } finally {
    signal?.removeEventListener('abort', cancel);
    call.cancel();
    channel.close();
  }
}

/** The call's messages in order, all of them even when an error follows; then the error is thrown. */
async function* readReplies(call: ClientReadableStream<Buffer>, peer: string): AsyncGenerator<Buffer, void, undefined> {
  const arrived: Buffer[] = [];
  let error: OdmoeError | null = null;
  let ended = false;
  let wake: () => void = () => undefined;
  call.on('data', (bytes: Buffer) => {
    arrived.push(bytes);
    if (arrived.length >= REPLIES_HELD_LIMIT) call.pause();
    wake();
  });
  call.on('error', (thrown: unknown) => {
    error = fromServiceError(thrown, 'NO_MAIN', peer);
  });
  call.on('end', () => {
    ended = true;
    wake();
  });
  for (;;) {
    const next = arrived.shift();
    if (next !== undefined) {
      if (call.isPaused() && arrived.length < REPLIES_HELD_LIMIT / 2) call.resume();
      yield next;
    } else if (ended) {
      // Lets an 'error' that grpc-js emits beside 'end' arrive first.
      await new Promise((resolve) => setImmediate(resolve));
      if (error !== null) throw error as OdmoeError;
      return;
    } else {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  }
}
