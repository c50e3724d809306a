/** Single calls: identity, counts, join, status, and a generation. */
import { Metadata } from '@grpc/grpc-js';
import { OdmoeError } from '../base/errors/odmoe-error.js';
import { waitForPeer } from '../base/runtime/peer-wait.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { openChannel, type Channel } from './channel.js';
import {
  CLUSTER_JOIN,
  CLUSTER_STATUS,
  INFERENCE_GENERATE,
  NODE_COUNTS,
  NODE_IDENTIFY,
  type RpcMethod,
} from '../wire/codecs.js';
import type {
  CountsReply,
  GenerateReply,
  GenerateRequest,
  JoinReply,
  NodeIdentity,
  StatusReply,
} from '../wire/messages.js';
import { FLOW_CONTROL_WINDOW_BYTES, MAIN_CHECK, REPLY_SIZE_LIMIT_BYTES } from '../wire/limits.js';
import { SilenceBound, type StreamKeepalive } from './silence-bound.js';
import { atDialledAddress } from '../wire/node-status.js';
import { silenceMessage, watchPeer } from './peer-keepalive.js';
import { readReplies } from './reply-reader.js';
import { cancelledCall, fromServiceError, notInTime } from './rpc-errors.js';
import { onAbort } from '../base/runtime/living.js';

const mainCheck = (): StreamKeepalive => ({
  keepaliveIntervalMs: MAIN_CHECK.keepaliveIntervalMs,
  bound: new SilenceBound(MAIN_CHECK.keepaliveTimeoutMs),
});

/** Most replies held for a slow reader before the sender must wait. */
const ANSWER_REPLIES_LIMIT = 256;

/**
 * The identity of the daemon at the address. TIMEOUT if no daemon answers in time, NO_MAIN if the connection fails, CANCELLED if the signal
 * aborts.
 */
export function identifyPeer(
  runtime: Runtime,
  address: string,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<NodeIdentity> {
  return callOnce(runtime, address, NODE_IDENTIFY, {}, timeoutMs, { isMain: false, signal });
}

/** Asks the daemon at the address for the counts of the things that it has open. Rejects as identifyPeer does. */
export function fetchCounts(runtime: Runtime, address: string, timeoutMs: number): Promise<CountsReply> {
  return callOnce(runtime, address, NODE_COUNTS, {}, timeoutMs, { isMain: false });
}

export function joinMain(
  runtime: Runtime,
  address: string,
  identity: NodeIdentity,
  timeoutMs: number,
): Promise<JoinReply> {
  return callOnce(runtime, address, CLUSTER_JOIN, { identity }, timeoutMs);
}

/** `address`: main's address, which main itself may not know. */
export async function fetchStatus(runtime: Runtime, address: string, timeoutMs: number): Promise<StatusReply> {
  const status = await callOnce(runtime, address, CLUSTER_STATUS, {}, timeoutMs);
  const nodes = status.nodes.map((node) =>
    node.identity.role === 'ROLE_MAIN' ? atDialledAddress(node, address) : node,
  );
  return { ...status, nodes };
}

const raw = (bytes: Buffer): Buffer => bytes;

async function callOnce<Request, Reply>(
  runtime: Runtime,
  address: string,
  method: RpcMethod<Request, Reply>,
  request: Request,
  timeoutMs: number,
  { isMain = true, signal }: { isMain?: boolean; signal?: AbortSignal | undefined } = {},
): Promise<Reply> {
  const channel = openChannel(address, runtime, FLOW_CONTROL_WINDOW_BYTES, REPLY_SIZE_LIMIT_BYTES);
  try {
    return await callOver(runtime, channel, address, method, request, timeoutMs, signal);
  } catch (thrown) {
    throw fromServiceError(thrown, 'NO_MAIN', address, isMain);
  } finally {
    channel.close();
  }
}

/**
 * One call over an existing channel. Rejects with the error of grpc-js, with TIMEOUT or with CANCELLED. `peer`: the name of the other end, for
 * messages.
 */
export async function callOver<Request, Reply>(
  runtime: Runtime,
  { client }: Channel,
  peer: string,
  method: RpcMethod<Request, Reply>,
  request: Request,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<Reply> {
  if (signal?.aborted === true) throw cancelledCall(peer);
  const bytes = await new Promise<Buffer>((resolve, reject) => {
    // A deadline of grpc-js would be over at once when this process goes on after a standstill.
    const silence = waitForPeer(runtime, timeoutMs, () => {
      reject(notInTime(peer));
      call.cancel();
    });
    const stopListening = onAbort(signal, () => {
      reject(cancelledCall(peer));
      call.cancel();
    });
    const call = client.makeUnaryRequest(method.path, raw, raw, method.request.encode(request), (error, reply) => {
      silence.cancel();
      stopListening();
      if (error !== null) reject(error);
      else resolve(reply ?? Buffer.alloc(0));
    });
  });
  return method.reply.decode(bytes);
}

/**
 * Asks main for an answer. Ends after `finished`. Throws OdmoeError with main's code, NO_MAIN if the connection fails, CANCELLED if the signal
 * aborts. A caller that leaves the loop early cancels the request at main.
 */
export async function* generate(
  runtime: Runtime,
  address: string,
  request: GenerateRequest,
  signal?: AbortSignal,
): AsyncGenerator<GenerateReply, void, undefined> {
  const channel = openChannel(address, runtime, FLOW_CONTROL_WINDOW_BYTES, REPLY_SIZE_LIMIT_BYTES);
  const { path, request: requestCodec, reply: replyCodec } = INFERENCE_GENERATE;
  const call = channel.client.makeServerStreamRequest(path, raw, raw, requestCodec.encode(request), new Metadata());
  const cancel = (): void => {
    call.cancel();
  };
  const leave = onAbort(signal, cancel);
  if (signal?.aborted === true) cancel();
  let silence: OdmoeError | null = null;
  const keepalive = watchPeer(runtime, channel, mainCheck(), (silentMs) => {
    silence = new OdmoeError('NO_MAIN', silenceMessage(`main at ${address}`, silentMs));
    cancel();
  });
  keepalive.start();
  let finished = false;
  try {
    for await (const bytes of readReplies(call, address, 'NO_MAIN', ANSWER_REPLIES_LIMIT, runtime)) {
      const reply = replyCodec.decode(bytes);
      finished ||= reply.kind === 'finished';
      yield reply;
    }
    if (!finished) throw new OdmoeError('NO_MAIN', `main at ${address} ended the answer before it was finished`);
  } catch (thrown) {
    throw silence ?? thrown;
  } finally {
    keepalive.stop();
    leave();
    call.cancel();
    channel.close();
  }
}
