import type { InterfaceWatch } from '../../shared/transport/discovery/host-interfaces.js';
import type { Discovery } from '../../shared/transport/discovery/discovery.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import {
  CLUSTER_JOIN,
  CLUSTER_STATUS,
  INFERENCE_GENERATE,
  NODE_COUNTS,
  NODE_IDENTIFY,
  PACK_DESCRIBE,
  PACK_MANIFEST,
  PACK_READ,
  SHADOW_SERVE,
  WORKER_SERVE,
  type RpcMethod,
} from '../../shared/wire/codecs.js';
import { SilenceBounds } from '../../shared/transport/silence-bound.js';
import type { PeerContext } from '../../shared/transport/peer-context.js';
import type { PeerStream } from '../../shared/transport/peer-stream.js';
import type { RpcServer, RpcServerOptions, Transport } from '../../shared/transport/transport.js';
import {
  CLIENT_CHECK_INTERVAL_MS,
  CLIENT_CHECK_TIMEOUT_MS,
  CLOSE_GRACE_MS,
  MAIN_CHECK,
  MESSAGE_SIZE_LIMIT_BYTES,
  PACK_PIECES_HELD_LIMIT,
  PIECE_IDLE_LIMIT_MS,
  PLAIN_RECEIVE_LIMIT_BYTES,
  REPLIES_HELD_LIMIT,
  SLOW_READER_LIMIT_MS,
} from '../../shared/wire/limits.js';
import { StallMeter } from '../../shared/base/runtime/stall-meter.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import type { ChannelOwner, ChannelSide } from './channel.js';
import { answerOnce, answerStreaming, callOnce, type CallLimits, readReplies } from './memory-calls.js';
import type { MemoryNetwork } from './memory-network.js';
import { acceptMemoryStream, openMemoryStream } from './memory-streams.js';

/** Interval at which a stopping server checks whether its clients have got the end of their answers. */
const SERVING_POLL_MS = 1;

/** Time that a client waits for a silent main, and time that a server waits for a silent client. */
const CLIENT_SILENCE_MS = MAIN_CHECK.keepaliveIntervalMs + MAIN_CHECK.keepaliveTimeoutMs;
const SERVER_SILENCE_MS = CLIENT_CHECK_INTERVAL_MS + CLIENT_CHECK_TIMEOUT_MS;

/**
 * The transport of the process on `host`. All messages go through the codecs of the wire. `patienceMs`: time that it waits, as a client, for a
 * silent main.
 */
export function memoryTransport(
  network: MemoryNetwork,
  host: string,
  runtime: VirtualRuntime,
  patienceMs = CLIENT_SILENCE_MS,
): Transport {
  const owner = (silenceLimitMs: number): ChannelOwner => ({ host, runtime, silenceLimitMs });
  const open = <Request, Reply>(
    address: string,
    method: RpcMethod<Request, Reply>,
    request: Request,
    limitMs: number,
  ): ChannelSide =>
    network.connect(owner(limitMs), address, { path: method.path, bytes: method.request.encode(request) });
  const bounds = new SilenceBounds();
  const openStream = (address: string, path: string): ChannelSide =>
    network.connect(owner(Infinity), address, { path, bytes: NOTHING });
  const once = <Request, Reply>(
    address: string,
    method: RpcMethod<Request, Reply>,
    request: Request,
    limits: CallLimits,
  ): Promise<Reply> => callOnce(open(address, method, request, limits.timeoutMs), method, limits);
  return {
    serve: (options) => serve(network, owner(SERVER_SILENCE_MS), options),
    openWorkerStream: (address, settings, receiveLimitBytes = MESSAGE_SIZE_LIMIT_BYTES) => {
      const side = openStream(address, WORKER_SERVE.path);
      side.names.peer = network.workerAt(side.peerHost);
      const times = bounds.keepaliveOf(address, settings);
      return openMemoryStream(side, WORKER_SERVE, 'WORKER_LOST', times, receiveLimitBytes);
    },
    openShadowStream: (address, settings) => {
      const times = bounds.keepaliveOf(address, settings);
      const side = openStream(address, SHADOW_SERVE.path);
      return openMemoryStream(side, SHADOW_SERVE, 'SHADOW_LOST', times, PLAIN_RECEIVE_LIMIT_BYTES);
    },
    openPackSource: (address, idleLimitMs = PIECE_IDLE_LIMIT_MS) => {
      const pieces = <Request>(
        method: RpcMethod<Request, { bytes: Uint8Array }>,
        request: Request,
        signal: AbortSignal,
      ) =>
        bytesOf(readReplies(open(address, method, request, idleLimitMs), method, 'WORKER_LOST', idleLimitMs, signal));
      const closed = network.packSources.opened(runtime);
      return {
        describe: (timeoutMs) => once(address, PACK_DESCRIBE, {}, { timeoutMs, lostCode: 'WORKER_LOST' }),
        read: (request, signal) => network.packSources.noted(runtime, pieces(PACK_READ, request, signal)),
        manifest: (packDigest, signal) => pieces(PACK_MANIFEST, { packDigest }, signal),
        close: closed,
      };
    },
    identifyPeer: (address, timeoutMs, signal) => once(address, NODE_IDENTIFY, {}, { timeoutMs, signal }),
    fetchCounts: (address, timeoutMs) => once(address, NODE_COUNTS, {}, { timeoutMs }),
    joinMain: (address, identity, timeoutMs) => once(address, CLUSTER_JOIN, { identity }, { timeoutMs }),
    fetchStatus: (address, timeoutMs) => once(address, CLUSTER_STATUS, {}, { timeoutMs }),
    generate: (address, request, signal) =>
      answerOf(() => open(address, INFERENCE_GENERATE, request, patienceMs), address, signal),
  };
}

async function* answerOf(
  connect: () => ChannelSide,
  address: string,
  signal: AbortSignal | undefined,
): ReturnType<Transport['generate']> {
  let finished = false;
  for await (const reply of readReplies(connect(), INFERENCE_GENERATE, 'NO_MAIN', Infinity, signal)) {
    finished ||= reply.kind === 'finished';
    yield reply;
  }
  if (!finished) throw new OdmoeError('NO_MAIN', `main at ${address} ended the answer before it was finished`);
}

/** Discovery for a simulated process. */
export function memoryDiscovery(
  network: MemoryNetwork,
  host: string,
  runtime: VirtualRuntime,
  interfaces: InterfaceWatch,
): Discovery {
  const none = { stop: async () => undefined };
  return {
    advertise: async ({ discovery }, identity) => {
      if (discovery.provider !== 'mdns') return none;
      const port = identity.address.split(':').at(-1);
      const role = ROLES[identity.role];
      if (role === undefined) return none;
      const announce = (): (() => void) =>
        network.announce(host, { ...identity, role, address: `${network.addressOf(host)}:${port}` });
      let stop = announce();
      const stopFollowing = interfaces.watch({ changed: () => (stop = announce()), failed: () => undefined });
      const end = runtime.living.begin('announcement', host);
      return {
        stop: async () => {
          stopFollowing();
          stop();
          end();
        },
      };
    },
    watchPeers: async (settings, onPeer) => {
      if (settings.discovery.provider !== 'mdns') return none;
      const stop = network.watchAnnouncements({ host, runtime }, settings, onPeer);
      const end = runtime.living.begin('browser', host);
      return {
        stop: async () => {
          stop();
          end();
        },
      };
    },
  };
}

const NOTHING = Buffer.alloc(0);
const ROLES: Readonly<Record<string, 'main' | 'shadow' | 'worker' | undefined>> = {
  ROLE_MAIN: 'main',
  ROLE_SHADOW: 'shadow',
  ROLE_WORKER: 'worker',
};

async function* bytesOf(pieces: AsyncIterable<{ bytes: Uint8Array }>): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const { bytes } of pieces) yield bytes;
}

async function serve(network: MemoryNetwork, owner: ChannelOwner, options: RpcServerOptions): Promise<RpcServer> {
  const streams = new Set<PeerStream<never, unknown>>();
  const answers = new Set<ChannelSide>();
  const accept = acceptor(network, options, { streams, answers });
  const stalls = new StallMeter(owner.runtime);
  const port = network.listen(owner.host, options.port, { ...owner, stalls, accept });
  if (port === null) {
    stalls.stop();
    throw new OdmoeError('PORT_UNAVAILABLE', `cannot listen on ${owner.host}:${options.port}: the port is in use`);
  }
  const stop = async (): Promise<void> => {
    stalls.stop();
    network.unlisten(owner.host, port);
    for (const stream of [...streams]) stream.close();
    const { runtime } = owner;
    const dueMs = runtime.nowMs() + CLOSE_GRACE_MS;
    const isHeard = (): boolean => [...answers].every(({ isOver }) => isOver);
    while (!isHeard() && runtime.nowMs() < dueMs) await runtime.sleep(SERVING_POLL_MS);
  };
  return { address: `${owner.host}:${port}`, port, tellLeaving: () => undefined, stop };
}

function acceptor(
  network: MemoryNetwork,
  options: RpcServerOptions,
  { streams, answers }: { streams: Set<PeerStream<never, unknown>>; answers: Set<ChannelSide> },
): (side: ChannelSide, path: string, bytes: Buffer, peer: PeerContext) => void {
  const { log, counts, worker, shadow, cluster, inference, pack } = options;
  const slowReaderLimitMs = options.slowReaderLimitMs ?? SLOW_READER_LIMIT_MS;
  const replies = { repliesHeld: REPLIES_HELD_LIMIT, slowReaderLimitMs };
  const packPieces = { repliesHeld: PACK_PIECES_HELD_LIMIT, slowReaderLimitMs };
  const track = <Out, In>(stream: PeerStream<Out, In>): PeerStream<Out, In> => {
    streams.add(stream);
    return stream;
  };
  return (side, path, bytes, peer) => {
    const once = <Request, Reply>(method: RpcMethod<Request, Reply>, run: (request: Request) => Promise<Reply>): void =>
      answerOnce(side, method, bytes, log, run);
    if (path === NODE_IDENTIFY.path) once(NODE_IDENTIFY, async () => options.identity(peer));
    else if (path === NODE_COUNTS.path && counts !== undefined) once(NODE_COUNTS, async () => counts(peer));
    else if (path === CLUSTER_JOIN.path && cluster !== undefined)
      once(CLUSTER_JOIN, ({ identity }) => cluster.join(identity, peer));
    else if (path === CLUSTER_STATUS.path && cluster !== undefined) once(CLUSTER_STATUS, () => cluster.status(peer));
    else if (path === INFERENCE_GENERATE.path && inference !== undefined) {
      for (const answer of answers) if (answer.isOver) answers.delete(answer);
      answers.add(side);
      answerStreaming(side, INFERENCE_GENERATE, bytes, log, (...asked) => inference(...asked, peer), replies);
    } else if (path === PACK_DESCRIBE.path && pack !== undefined) once(PACK_DESCRIBE, async () => pack.describe(peer));
    else if (path === PACK_MANIFEST.path && pack !== undefined)
      answerStreaming(side, PACK_MANIFEST, bytes, log, (...asked) => pack.manifest(...asked, peer), packPieces);
    else if (path === PACK_READ.path && pack !== undefined)
      answerStreaming(side, PACK_READ, bytes, log, (...asked) => pack.read(...asked, peer), packPieces);
    else if (path === WORKER_SERVE.path && worker !== undefined) {
      side.names.own = network.workerAt(side.owner.host);
      const stream = track(acceptMemoryStream(side, WORKER_SERVE, () => streams.delete(stream)));
      worker(stream, peer);
    } else if (path === SHADOW_SERVE.path && shadow !== undefined) {
      const stream = track(acceptMemoryStream(side, SHADOW_SERVE, () => streams.delete(stream)));
      shadow(stream, peer);
    } else {
      side.send({ kind: 'failed', code: 'PROTOCOL_VIOLATION', text: `${side.label} does not serve ${path}` });
      side.close();
    }
  };
}
