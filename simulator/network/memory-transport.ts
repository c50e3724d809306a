import type { InterfaceWatch } from '../../shared/transport/discovery/host-interfaces.js';
import type { Discovery } from '../../shared/transport/discovery/discovery.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { answerStream } from '../../shared/transport/answer-calls.js';
import type { RpcMethod } from '../../shared/wire/codecs.js';
import { METHODS, type MethodRules, type StreamMethod } from '../../shared/transport/methods.js';
import type { ClusterTrust } from '../../shared/transport/trust/cluster-trust.js';
import { type ServedMethod, servedMethods } from '../../shared/transport/served-methods.js';
import type { PeerMessage } from '../../shared/transport/stream-pace.js';
import { SilenceBounds } from '../../shared/transport/silence-bound.js';
import type { PeerContext } from '../../shared/transport/peer-context.js';
import type { PeerStream } from '../../shared/transport/peer-stream.js';
import type { RpcServer, RpcServerOptions, Transport } from '../../shared/transport/transport.js';
import {
  CLIENT_CHECK_INTERVAL_MS,
  CLIENT_CHECK_TIMEOUT_MS,
  CLOSE_GRACE_MS,
  MAIN_CHECK,
  REMOVAL_GRACE_MS,
  SLOW_READER_LIMIT_MS,
} from '../../shared/wire/limits.js';
import { StandstillMeter } from '../../shared/base/runtime/standstill-meter.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import type { ChannelOwner, ChannelSide } from './channel.js';
import { answerMemoryCall, answerMemoryReplies, callOnce, readMemoryReplies } from './memory-calls.js';
import type { MemoryNetwork } from './memory-network.js';
import { AdmittedSides } from './admitted-sides.js';
import { acceptMemoryStream, NOT_ADMITTED, openMemoryStream } from './memory-streams.js';

/** Interval at which a stopping server checks whether its clients have got the end of their replies. */
const SERVING_POLL_MS = 1;

/** Time that a client waits for a silent main, and time that a server waits for a silent client. */
const CLIENT_SILENCE_MS = MAIN_CHECK.keepaliveIntervalMs + MAIN_CHECK.keepaliveTimeoutMs;
const SERVER_SILENCE_MS = CLIENT_CHECK_INTERVAL_MS + CLIENT_CHECK_TIMEOUT_MS;

export interface MemoryTransportOptions {
  /** Time that it waits, as a client, for a silent main; left out: as the daemons' client. */
  readonly patienceMs?: number | undefined;
  /** Its part in the trust of a cluster with an authority; left out: everybody is let in. */
  readonly trust?: ClusterTrust | null;
}

/** The transport of the process on `host`. All messages go through the codecs of the wire. */
export function memoryTransport(
  network: MemoryNetwork,
  host: string,
  runtime: VirtualRuntime,
  { patienceMs = CLIENT_SILENCE_MS, trust = null }: MemoryTransportOptions = {},
): Transport {
  const owner = (silenceLimitMs: number): ChannelOwner => ({ host, runtime, silenceLimitMs, trust });
  const open = <Request, Reply>(
    address: string,
    method: RpcMethod<Request, Reply> & Pick<MethodRules, 'servedBy'>,
    request: Request,
    limitMs: number,
  ): ChannelSide => {
    const side = network.connect(owner(limitMs), address, {
      path: method.path,
      servedBy: method.servedBy,
      bytes: method.request.encode(request),
    });
    side.dialled?.watch(() => runtime.background(REMOVAL_GRACE_MS, () => side.lose(NOT_ADMITTED)));
    return side;
  };
  const bounds = new SilenceBounds();
  const transport: Transport = {
    serve: (options) => serve(network, owner(SERVER_SILENCE_MS), options),
    stream: (address, method, settings) => {
      const side = network.connect(owner(Infinity), address, {
        path: method.path,
        servedBy: method.servedBy,
        bytes: NOTHING,
      });
      side.names.peer = network.workerAt(side.peerHost);
      return openMemoryStream(side, method, bounds.keepaliveOf(address, settings));
    },
    call: async (address, method, request, limits) =>
      callOnce(open(address, method, request, limits.timeoutMs), method, limits),
    replies: (address, method, request, { signal, idleLimitMs }) => {
      const connect = (): ChannelSide => open(address, method, request, idleLimitMs ?? patienceMs);
      const replies = readMemoryReplies(connect, method, idleLimitMs ?? Infinity, signal);
      return method.path === METHODS.pack.read.path ? network.packSources.noted(runtime, replies) : replies;
    },
    connect: (address) => ({
      call: (...asked) => transport.call(address, ...asked),
      replies: (...asked) => transport.replies(address, ...asked),
      close: network.packSources.opened(runtime),
    }),
  };
  return transport;
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
      const advertise = (): (() => void) =>
        network.advertise(host, { ...identity, role, authority: null, address: `${network.addressOf(host)}:${port}` });
      let stop = advertise();
      const stopFollowing = interfaces.watch({ changed: () => (stop = advertise()), failed: () => undefined });
      const end = runtime.living.begin('advertisement', host);
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
      const stop = network.watchAdvertisements({ host, runtime }, settings, onPeer);
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

async function serve(network: MemoryNetwork, owner: ChannelOwner, options: RpcServerOptions): Promise<RpcServer> {
  const streams = new Set<PeerStream<never, unknown>>();
  const replies = new Set<ChannelSide>();
  const admitted = new AdmittedSides(owner);
  const accept = acceptor(network, options, { streams, replies, admitted });
  const standstills = new StandstillMeter(owner.runtime);
  const port = network.listen(owner.host, options.port, { ...owner, standstills, accept });
  if (port === null) {
    standstills.stop();
    admitted.stop();
    throw new OdmoeError('PORT_UNAVAILABLE', `cannot listen on ${owner.host}:${options.port}: the port is in use`);
  }
  const stop = async (): Promise<void> => {
    standstills.stop();
    admitted.stop();
    network.unlisten(owner.host, port);
    for (const stream of [...streams]) stream.close();
    const { runtime } = owner;
    const dueMs = runtime.nowMs() + CLOSE_GRACE_MS;
    const isHeard = (): boolean => [...replies].every(({ isOver }) => isOver);
    while (!isHeard() && runtime.nowMs() < dueMs) await runtime.sleep(SERVING_POLL_MS);
  };
  return { address: `${owner.host}:${port}`, port, connectionsFrom: () => 0, tellLeaving: () => undefined, stop };
}

interface Serving {
  readonly streams: Set<PeerStream<never, unknown>>;
  readonly replies: Set<ChannelSide>;
  readonly admitted: AdmittedSides;
}

function acceptor(
  network: MemoryNetwork,
  options: RpcServerOptions,
  { streams, replies, admitted }: Serving,
): (side: ChannelSide, path: string, bytes: Buffer, peer: PeerContext) => void {
  const { log, slowReaderLimitMs = SLOW_READER_LIMIT_MS } = options;
  const methods = servedMethods(options);
  const takeStream = <Request extends PeerMessage, Reply extends PeerMessage>(
    side: ChannelSide,
    method: StreamMethod<Request, Reply>,
  ): PeerStream<Reply, Request> => {
    side.names.own = network.workerAt(side.owner.host);
    const stream = acceptMemoryStream(side, method, () => streams.delete(stream));
    streams.add(stream);
    return stream;
  };
  return (side, path, bytes, peer) => {
    const found = methods.get(path);
    if (found === undefined) {
      side.send({ kind: 'failed', code: 'PROTOCOL_VIOLATION', text: `${side.label} does not serve ${path}` });
      side.close();
      return;
    }
    const served = noting(found, () => network.doorWatch?.handled(side, found.method, peer));
    if (served.shape === 'stream') {
      const stream = takeStream(side, served.method);
      admitted.add(side, stream);
      answerStream(served.method, served.handle, stream, peer);
      return;
    }
    admitted.add(side, null);
    if (served.shape === 'call') answerMemoryCall(side, served, bytes, peer, log);
    else {
      if (path === METHODS.inference.generate.path) {
        for (const reply of replies) if (reply.isOver) replies.delete(reply);
        replies.add(side);
      }
      answerMemoryReplies(side, served, bytes, peer, { log, runtime: side.owner.runtime, slowReaderLimitMs });
    }
  };
}

/** The method, with a handler that calls `note` first. */
function noting(served: ServedMethod, note: () => void): ServedMethod {
  switch (served.shape) {
    case 'stream':
      return {
        ...served,
        handle: (...asked: Parameters<typeof served.handle>) => {
          note();
          served.handle(...asked);
        },
      };
    case 'call':
      return {
        ...served,
        handle: (...asked: Parameters<typeof served.handle>) => {
          note();
          return served.handle(...asked);
        },
      };
    case 'replies':
      return {
        ...served,
        handle: (...asked: Parameters<typeof served.handle>) => {
          note();
          return served.handle(...asked);
        },
      };
  }
}
