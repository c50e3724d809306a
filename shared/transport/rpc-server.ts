import {
  Metadata,
  Server,
  logVerbosity,
  setLogVerbosity,
  type ServerDuplexStream,
  type UntypedServiceImplementation,
} from '@grpc/grpc-js';
import { HealthImplementation } from 'grpc-health-check';
import { assertInvariant } from '../base/errors/assert-invariant.js';
import { OdmoeError, toOdmoeError } from '../base/errors/odmoe-error.js';
import type { Logger } from '../base/log/logger.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { StandstillMeter } from '../base/runtime/standstill-meter.js';
import { formatAddress } from '../wire/addresses.js';
import { answerStream } from './answer-calls.js';
import { serverOptions } from './channel-options.js';
import { unprotectedWarning } from './credentials.js';
import { openOperatorSocket } from './operator-socket.js';
import { openServerPort, type ServerPort } from './server-port.js';
import {
  CLOSE_GRACE_MS,
  MESSAGE_SIZE_LIMIT_BYTES,
  PLAIN_RECEIVE_LIMIT_BYTES,
  REQUEST_LIMIT_MS,
  SLOW_READER_LIMIT_MS,
} from '../wire/limits.js';
import { METHODS, type StreamMethod } from './methods.js';
import { MessagePeerStream, type PeerStream } from './peer-stream.js';
import { raiseRequestLimit } from './receive-limit.js';
import { STANDSTILL_METADATA, toServiceError } from './rpc-errors.js';
import { type Handler, type ServedMethod, servedMethods } from './served-methods.js';
import { carrierOf, type PeerMessage, type StreamPace } from './stream-pace.js';
import {
  type CallerOf,
  grpcCall,
  grpcReplies,
  type OpenReplies,
  peerContextOf,
  type RawServerStream,
} from './server-handlers.js';
import type { RpcServer, RpcServerOptions } from './transport.js';
import type { ClusterTrust } from './trust/cluster-trust.js';
import type { CertifiedCaller } from './trust/peer-role.js';
import { living } from '../base/runtime/living.js';
import { countedName } from './peer-context.js';
import { UnfinishedRequests } from './unfinished-requests.js';

interface ServerSetup {
  /** The emulated pace of the streams between daemons; null: no emulation. */
  readonly pace: StreamPace | null;
  /** null: the cluster has no authority, and everybody is let in. */
  readonly trust: ClusterTrust | null;
}

/**
 * A daemon's server. It serves the methods in the options, and grpc.health.v1.Health. Throws PORT_UNAVAILABLE. Logs one warning if other machines
 * can reach it.
 */
export async function startRpcServer(
  runtime: Runtime,
  options: RpcServerOptions,
  { pace, trust }: ServerSetup,
): Promise<RpcServer> {
  // Our code gets every fault as an error; grpc-js would also print it, past our log.
  setLogVerbosity(logVerbosity.NONE);
  const openStreams: OpenStreams = new Map();
  const openReplies: OpenReplies = new Map();
  const standstills = new StandstillMeter(runtime);
  const unfinished = new UnfinishedRequests(runtime, options.requestLimitMs ?? REQUEST_LIMIT_MS);
  const serving = { openStreams, openReplies, log: options.log, pace, runtime, standstills, unfinished };
  const endStreamsOf = ({ id }: CertifiedCaller, reason: OdmoeError): void => {
    for (const [stream, caller] of [...openStreams]) if (caller?.id === id) stream.close(reason);
    for (const [end, caller] of [...openReplies]) if (caller?.id === id) end(reason);
  };
  const doors: Door[] = [];
  let port: number;
  try {
    const door = await openDoor(options, serving, (server) =>
      openServerPort(server, { ...options, trust, endStreamsOf }, runtime),
    );
    doors.push(door);
    ({ port } = door.port);
    const path = options.operatorSocket;
    if (trust !== null && path !== undefined) {
      const operator = { cluster: trust.cluster, role: 'operator', id: LOCAL_OPERATOR } as const;
      doors.push(await openDoor(options, serving, (server) => openOperatorSocket(server, path, operator)));
    }
  } catch (thrown) {
    standstills.stop();
    await stopServer(doors, openStreams, runtime);
    throw thrown;
  }
  const address = formatAddress(options.host, port);
  const warning = trust === null ? unprotectedWarning(options.host) : null;
  if (warning !== null) options.log.warn(warning, { address });
  let stopping: Promise<void> | null = null;
  return {
    address,
    port,
    connectionsFrom: (id) => doors.reduce((sum, door) => sum + door.port.connectionsFrom(id), 0),
    tellLeaving: () => doors.forEach(({ health }) => health.setStatus('', 'NOT_SERVING')),
    stop: () => {
      standstills.stop();
      stopping ??= stopServer(doors, openStreams, runtime);
      return stopping;
    },
  };
}

/** Id of the person at main's own host, as logs name it. */
const LOCAL_OPERATOR = 'local';

/** One way into the daemon, with a gRPC server of its own, so that the callers of each are known by it. */
interface Door {
  readonly server: Server;
  readonly health: HealthImplementation;
  readonly port: ServerPort;
}

async function openDoor(
  options: RpcServerOptions,
  serving: Omit<PeerServing, 'callerOf'>,
  open: (server: Server) => Promise<ServerPort>,
): Promise<Door> {
  let port: ServerPort | null = null;
  const callerOf: CallerOf = (call) => {
    assertInvariant(port !== null, 'A server that is called has a port.');
    return port.callerOf(call);
  };
  const server = new Server({
    ...serverOptions(PLAIN_RECEIVE_LIMIT_BYTES),
    interceptors: [serving.unfinished.interceptor((call) => nameOf(call, callerOf))],
  });
  addMethods(server, options, { ...serving, callerOf });
  const health = new HealthImplementation({ '': 'SERVING' });
  health.addToServer(server);
  try {
    port = await open(server);
  } catch (thrown) {
    server.forceShutdown();
    throw thrown;
  }
  return { server, health, port };
}

/** The name by which bounds count the caller; empty if it has gone. */
function nameOf(call: Parameters<typeof peerContextOf>[0], callerOf: CallerOf): string {
  try {
    return countedName(peerContextOf(call, callerOf));
  } catch {
    return '';
  }
}

/** The streams that peers have opened, each with the peer that its certificate names. */
type OpenStreams = Map<PeerStream<never, unknown>, CertifiedCaller | null>;

const raw = (bytes: Buffer): Buffer => bytes;

/** Registers each method as a separate service. Messages stay bytes, so that our code answers decoding faults. */
function addMethods(server: Server, options: RpcServerOptions, serving: PeerServing): void {
  for (const [path, served] of servedMethods(options)) {
    const definition = {
      path,
      requestStream: served.shape === 'stream',
      responseStream: served.shape !== 'call',
      requestSerialize: raw,
      requestDeserialize: raw,
      responseSerialize: raw,
      responseDeserialize: raw,
    };
    server.addService({ Method: definition }, { Method: grpcHandler(served, options, serving) });
  }
}

function grpcHandler(
  served: ServedMethod,
  { log, slowReaderLimitMs = SLOW_READER_LIMIT_MS }: RpcServerOptions,
  serving: PeerServing,
): UntypedServiceImplementation[string] {
  if (served.shape === 'stream') return serveStreams(served.method, served.handle, serving);
  const { runtime, standstills, callerOf, openReplies } = serving;
  if (served.shape === 'replies')
    return grpcReplies(served, { log, runtime, slowReaderLimitMs }, callerOf, openReplies);
  const isKeepalive = served.method.path === METHODS.node.identify.path;
  return grpcCall(served, log, callerOf, () => (isKeepalive ? standstillMetadata(standstills) : null));
}

function standstillMetadata(standstills: StandstillMeter): Metadata {
  const metadata = new Metadata();
  metadata.set(STANDSTILL_METADATA, String(Math.round(standstills.recentMs)));
  return metadata;
}

interface PeerServing {
  openStreams: OpenStreams;
  openReplies: OpenReplies;
  callerOf: CallerOf;
  log: Logger;
  pace: StreamPace | null;
  runtime: Runtime;
  standstills: StandstillMeter;
  unfinished: UnfinishedRequests;
}

function serveStreams<Request extends PeerMessage, Reply extends PeerMessage>(
  method: StreamMethod<Request, Reply>,
  serve: Handler<StreamMethod<Request, Reply>>,
  { openStreams, log, pace, runtime, callerOf }: PeerServing,
): (call: RawServerStream) => void {
  return (call) => {
    const peer = call.getPeer();
    const side = {
      certifiedPeer: (): CertifiedCaller | null => openStreams.get(stream) ?? null,
      takeTensors: () => raiseRequestLimit(call, MESSAGE_SIZE_LIMIT_BYTES),
      finish: () => {
        endInTime(call, runtime);
      },
      fail: (error: OdmoeError) => {
        log.warn('a peer stream was closed', { peer, method: method.path, error });
        call.emit('error', toServiceError(error));
        endInTime(call, runtime);
      },
    };
    const carrier = carrierOf(call, pace);
    const stream = new MessagePeerStream(
      carrier,
      pace?.codec(method.reply) ?? method.reply,
      pace?.codec(method.request) ?? method.request,
      side,
    );
    const end = living().begin('stream', `${method.path} of ${peer}`);
    const gone = (): void => {
      carrier.afterDelivery(() => stream.ended(new OdmoeError('CANCELLED', `the peer at ${peer} went away`)));
    };
    call.on('cancelled', gone);
    call.on('end', () => {
      // A reset of the stream also looks like an orderly end at first.
      runtime.nextTurn(() => {
        if (call.cancelled) gone();
        else carrier.afterDelivery(() => stream.endedByPeer());
      });
    });
    call.on('close', () => {
      end();
      openStreams.delete(stream);
    });
    try {
      const context = peerContextOf(call, callerOf);
      openStreams.set(stream, context.caller);
      answerStream(method, serve, stream, context);
    } catch (thrown) {
      stream.close(toOdmoeError(thrown));
    }
  };
}

/** Ends the reply side. Replies that the peer has not read after the grace time are dropped. */
function endInTime(call: ServerDuplexStream<Buffer, Buffer>, runtime: Runtime): void {
  call.end();
  const timer = runtime.after(CLOSE_GRACE_MS, () => {
    call.destroy();
  });
  timer.unref();
  call.once('close', () => {
    timer.cancel();
  });
}

async function stopServer(doors: readonly Door[], openStreams: OpenStreams, runtime: Runtime): Promise<void> {
  for (const { health, port } of doors) {
    health.setStatus('', 'NOT_SERVING');
    port.close();
  }
  for (const stream of openStreams.keys()) stream.close();
  await Promise.all(doors.map(({ server }) => shutDown(server, runtime)));
}

async function shutDown(server: Server, runtime: Runtime): Promise<void> {
  return new Promise((resolve) => {
    const timer = runtime.after(CLOSE_GRACE_MS, () => {
      server.forceShutdown();
      resolve();
    });
    server.tryShutdown(() => {
      timer.cancel();
      resolve();
    });
  });
}
