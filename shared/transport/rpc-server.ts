import {
  Metadata,
  Server,
  logVerbosity,
  setLogVerbosity,
  type ServerDuplexStream,
  type UntypedServiceImplementation,
} from '@grpc/grpc-js';
import { HealthImplementation } from 'grpc-health-check';
import { createServer } from 'node:net';
import { OdmoeError } from '../base/errors/odmoe-error.js';
import type { Logger } from '../base/log/logger.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { StandstillMeter } from '../base/runtime/standstill-meter.js';
import { formatAddress } from '../wire/addresses.js';
import { answerStream } from './answer-calls.js';
import { serverOptions } from './channel-options.js';
import { serverCredentials, unprotectedWarning } from './credentials.js';
import {
  CLOSE_GRACE_MS,
  MESSAGE_SIZE_LIMIT_BYTES,
  PLAIN_RECEIVE_LIMIT_BYTES,
  SLOW_READER_LIMIT_MS,
} from '../wire/limits.js';
import { METHODS, type StreamMethod } from './methods.js';
import { MessagePeerStream, type PeerStream } from './peer-stream.js';
import { raiseRequestLimit } from './receive-limit.js';
import { STANDSTILL_METADATA, toServiceError } from './rpc-errors.js';
import { type Handler, type ServedMethod, servedMethods } from './served-methods.js';
import { carrierOf, type PeerMessage, type StreamPace } from './stream-pace.js';
import { grpcCall, grpcReplies, peerContextOf, type RawServerStream } from './server-handlers.js';
import type { RpcServer, RpcServerOptions } from './transport.js';
import { living } from '../base/runtime/living.js';

/**
 * A daemon's server. It serves the methods in the options, and grpc.health.v1.Health. Throws PORT_UNAVAILABLE. Logs one warning if other machines
 * can reach it.
 */
export async function startRpcServer(
  runtime: Runtime,
  options: RpcServerOptions,
  pace: StreamPace | null,
): Promise<RpcServer> {
  // Our code gets every fault as an error; grpc-js would also print it, past our log.
  setLogVerbosity(logVerbosity.NONE);
  const server = new Server(serverOptions(PLAIN_RECEIVE_LIMIT_BYTES));
  const openStreams = new Set<PeerStream<never, unknown>>();
  const standstills = new StandstillMeter(runtime);
  addMethods(server, options, { openStreams, log: options.log, pace, runtime, standstills });
  const health = new HealthImplementation({ '': 'SERVING' });
  health.addToServer(server);
  const port = await bind(server, options).catch((thrown: unknown) => {
    standstills.stop();
    throw thrown;
  });
  const warning = unprotectedWarning(options.host);
  if (warning !== null) options.log.warn(warning, { address: formatAddress(options.host, port) });
  let stopping: Promise<void> | null = null;
  return {
    address: formatAddress(options.host, port),
    port,
    tellLeaving: () => health.setStatus('', 'NOT_SERVING'),
    stop: () => {
      standstills.stop();
      stopping ??= stopServer(server, openStreams, health, runtime);
      return stopping;
    },
  };
}

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
  const { runtime, standstills } = serving;
  if (served.shape === 'replies') return grpcReplies(served, { log, runtime, slowReaderLimitMs });
  const isKeepalive = served.method.path === METHODS.node.identify.path;
  return grpcCall(served, log, () => (isKeepalive ? standstillMetadata(standstills) : null));
}

function standstillMetadata(standstills: StandstillMeter): Metadata {
  const metadata = new Metadata();
  metadata.set(STANDSTILL_METADATA, String(Math.round(standstills.recentMs)));
  return metadata;
}

interface PeerServing {
  openStreams: Set<PeerStream<never, unknown>>;
  log: Logger;
  pace: StreamPace | null;
  runtime: Runtime;
  standstills: StandstillMeter;
}

function serveStreams<Request extends PeerMessage, Reply extends PeerMessage>(
  method: StreamMethod<Request, Reply>,
  serve: Handler<StreamMethod<Request, Reply>>,
  { openStreams, log, pace, runtime }: PeerServing,
): (call: RawServerStream) => void {
  return (call) => {
    const peer = call.getPeer();
    const side = {
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
    openStreams.add(stream);
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
    answerStream(method, serve, stream, peerContextOf(call));
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

async function bind(server: Server, options: RpcServerOptions): Promise<number> {
  const address = formatAddress(options.host, options.port);
  return new Promise((resolve, reject) => {
    server.bindAsync(address, serverCredentials(), (error, port) => {
      if (error === null) {
        resolve(port);
        return;
      }
      server.forceShutdown();
      explainBindFailure(options.host, options.port).then((reason) => {
        reject(new OdmoeError('PORT_UNAVAILABLE', `cannot listen on ${address}: ${reason}`, { cause: error }));
      }, reject);
    });
  });
}

/** grpc-js does not give the reason why it could not bind; a plain listener does. */
async function explainBindFailure(host: string, port: number): Promise<string> {
  const probe = createServer();
  const code = await new Promise<string>((resolve) => {
    probe.once('error', (error: NodeJS.ErrnoException) => {
      resolve(error.code ?? error.message);
    });
    probe.listen({ host, port, exclusive: true }, () => {
      probe.close(() => {
        resolve('free by now');
      });
    });
  });
  switch (code) {
    case 'EADDRINUSE':
      return 'the port is in use; is another daemon running? stop it, or choose another --port';
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
      return 'this machine has no such address; give one of its own as --host, or 0.0.0.0 for all of them';
    case 'EACCES':
      return 'ports below 1024 need more rights; choose a higher --port';
    default:
      return `${code}; try again, or choose another --port or --host`;
  }
}

async function stopServer(
  server: Server,
  openStreams: ReadonlySet<PeerStream<never, unknown>>,
  health: HealthImplementation,
  runtime: Runtime,
): Promise<void> {
  health.setStatus('', 'NOT_SERVING');
  for (const stream of openStreams) stream.close();
  await new Promise<void>((resolve) => {
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
