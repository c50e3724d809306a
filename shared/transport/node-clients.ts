/** The methods that a node asks others for, each with its types, limits and checks, over any transport. */
import { OdmoeError } from '../base/errors/odmoe-error.js';
import type { NodeSettings } from '../settings/node-settings.js';
import { PACK_PIECE_IDLE_LIMIT_MS } from '../wire/limits.js';
import type {
  CountsReply,
  GenerateReply,
  GenerateRequest,
  JoinReply,
  NodeIdentity,
  NodeStatus,
  PackDescription,
  PackPiece,
  ReadManifestRequest,
  ReadPackRequest,
  RenewReply,
  RenewRequest,
  ShadowReply,
  ShadowRequest,
  StatusReply,
  WorkerReply,
  WorkerRequest,
} from '../wire/messages.js';
import { dialAddress, isSocketAddress } from '../wire/addresses.js';
import { atDialledAddress } from '../wire/node-status.js';
import { METHODS } from './methods.js';
import type { PeerStream } from './peer-stream.js';
import type { CallLimits, Transport } from './transport.js';

type Network = NodeSettings['network'];
type Caller = Pick<Transport, 'call'>;

export function openWorkerStream(
  transport: Pick<Transport, 'stream'>,
  address: string,
  network: Network,
): PeerStream<WorkerRequest, WorkerReply> {
  return transport.stream(address, METHODS.worker.serve, network);
}

export function openShadowStream(
  transport: Pick<Transport, 'stream'>,
  address: string,
  network: Network,
): PeerStream<ShadowRequest, ShadowReply> {
  return transport.stream(address, METHODS.shadow.serve, network);
}

/**
 * The identity of the daemon at the address. Rejects with TIMEOUT if no daemon answers in time, NO_MAIN if the connection fails, CANCELLED if
 * the signal aborts.
 */
export function identifyPeer(
  transport: Caller,
  address: string,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<NodeIdentity> {
  return transport.call(address, METHODS.node.identify, {}, { timeoutMs, signal });
}

/** Asks the daemon at the address for the counts of the things that it has open. Rejects as identifyPeer does. */
export function fetchCounts(transport: Caller, address: string, timeoutMs: number): Promise<CountsReply> {
  return transport.call(address, METHODS.node.counts, {}, { timeoutMs });
}

export function joinMain(
  transport: Caller,
  address: string,
  identity: NodeIdentity,
  timeoutMs: number,
): Promise<JoinReply> {
  return transport.call(address, METHODS.cluster.join, { identity }, { timeoutMs });
}

/** Asks main to certify this node's next key. */
export function renewKey(
  transport: Caller,
  address: string,
  request: RenewRequest,
  limits: CallLimits,
): Promise<RenewReply> {
  return transport.call(address, METHODS.keys.renew, request, limits);
}

/** `address`: main's address, which main itself may not know. */
export async function fetchStatus(transport: Caller, address: string, timeoutMs: number): Promise<StatusReply> {
  const status = await transport.call(address, METHODS.cluster.status, {}, { timeoutMs });
  const nodes = status.nodes.map((node) =>
    node.identity.role === 'ROLE_MAIN' ? atDialledAddress(node, tcpAddress(node, address)) : node,
  );
  return { ...status, nodes };
}

/** The address of a main that was asked by its operator's socket, as its own host reaches it. */
function tcpAddress({ identity }: NodeStatus, asked: string): string {
  return isSocketAddress(asked) ? dialAddress(identity.address, '127.0.0.1') : asked;
}

/**
 * Asks main for an answer. Ends after `finished`. Throws OdmoeError with main's code, NO_MAIN if the connection fails, CANCELLED if the signal
 * aborts. A caller that leaves the loop early cancels the request at main.
 */
export async function* generate(
  transport: Pick<Transport, 'replies'>,
  address: string,
  request: GenerateRequest,
  signal?: AbortSignal,
): AsyncGenerator<GenerateReply, void, undefined> {
  let finished = false;
  for await (const reply of transport.replies(address, METHODS.inference.generate, request, { signal })) {
    finished ||= reply.kind === 'finished';
    yield reply;
  }
  if (!finished) throw new OdmoeError('NO_MAIN', `main at ${address} ended the answer before it was finished`);
}

/**
 * A daemon from which pack pieces can be read. Calls reject with the peer's code; with WORKER_LOST if the connection fails (the source is
 * then useless); and if no pack piece comes within the idle limit.
 */
export interface PackSource {
  describe(timeoutMs: number): Promise<PackDescription>;
  /** The pack pieces come at the pace of the loop over them. A caller that leaves the loop ends the call. */
  read(request: ReadPackRequest, signal: AbortSignal): AsyncIterable<Uint8Array>;
  manifest(request: ReadManifestRequest, signal: AbortSignal): AsyncIterable<Uint8Array>;
  close(): void;
}

/** `idleLimitMs`: the longest wait for a next pack piece. */
export function openPackSource(
  transport: Pick<Transport, 'connect'>,
  address: string,
  idleLimitMs = PACK_PIECE_IDLE_LIMIT_MS,
): PackSource {
  const { describe, manifest, read } = METHODS.pack;
  const connection = transport.connect(address, read);
  return {
    describe: (timeoutMs) => connection.call(describe, {}, { timeoutMs }),
    read: (request, signal) => bytesOf(connection.replies(read, request, { signal, idleLimitMs })),
    manifest: (request, signal) => bytesOf(connection.replies(manifest, request, { signal, idleLimitMs })),
    close: () => connection.close(),
  };
}

async function* bytesOf(pieces: AsyncIterable<PackPiece>): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const { bytes } of pieces) yield bytes;
}
