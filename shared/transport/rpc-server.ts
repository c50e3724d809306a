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
import type { ErrorCode } from '../base/errors/registry.js';
import type { Logger } from '../base/log/logger.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { StallMeter } from '../base/runtime/stall-meter.js';
import { formatAddress } from '../wire/addresses.js';
import { serverOptions } from './channel-options.js';
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
} from '../wire/codecs.js';
import { serverCredentials, unprotectedWarning } from './credentials.js';
import {
  CLOSE_GRACE_MS,
  MESSAGE_SIZE_LIMIT_BYTES,
  PACK_PIECES_HELD_LIMIT,
  PLAIN_RECEIVE_LIMIT_BYTES,
  REPLIES_HELD_LIMIT,
  SLOW_READER_LIMIT_MS,
} from '../wire/limits.js';
import type { PeerContext } from './peer-context.js';
import { MessagePeerStream, type PeerStream } from './peer-stream.js';
import { raiseReceiveLimit } from './receive-limit.js';
import { STALL_METADATA, toServiceError } from './rpc-errors.js';
import { carrierOf, type PeerMessage, type StreamPace } from './stream-pace.js';
import {
  answerOnce,
  answerStreaming,
  peerContextOf,
  type RawServerStream,
  type StreamingLimits,
} from './server-handlers.js';
import type { RpcServer, RpcServerOptions } from './transport.js';
import { living } from '../base/runtime/living.js';

/**
 * A daemon's server. It serves the services in the options, and always Node.Identify and grpc.health.v1.Health. Throws PORT_UNAVAILABLE. Logs
 * one warning if other machines can reach it.
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
  const stalls = new StallMeter(runtime);
  addServices(server, options, { openStreams, log: options.log, pace, runtime, stalls });
  const health = new HealthImplementation({ '': 'SERVING' });
  health.addToServer(server);
  const port = await bind(server, options).catch((thrown: unknown) => {
    stalls.stop();
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
      stalls.stop();
      stopping ??= stopServer(server, openStreams, health, runtime);
      return stopping;
    },
  };
}

function addServices(server: Server, options: RpcServerOptions, peers: PeerServing): void {
  const { worker, shadow, cluster, inference, log } = options;
  const slowReaderLimitMs = options.slowReaderLimitMs ?? SLOW_READER_LIMIT_MS;
  const { runtime } = peers;
  addMethod(server, NODE_IDENTIFY, {
    handler: answerOnce(
      NODE_IDENTIFY,
      log,
      async (_, peer) => options.identity(peer),
      () => stallMetadata(peers.stalls),
    ),
    streams: 'none',
  });
  const { counts } = options;
  if (counts !== undefined) {
    addMethod(server, NODE_COUNTS, {
      handler: answerOnce(NODE_COUNTS, log, async (_, peer) => counts(peer)),
      streams: 'none',
    });
  }
  if (worker !== undefined) {
    addMethod(server, WORKER_SERVE, { handler: serveStreams(WORKER_SERVE, worker, peers), streams: 'both' });
  }
  if (shadow !== undefined) {
    addMethod(server, SHADOW_SERVE, { handler: serveStreams(SHADOW_SERVE, shadow, peers), streams: 'both' });
  }
  if (cluster !== undefined) {
    const join = answerOnce(CLUSTER_JOIN, log, ({ identity }, peer) => cluster.join(identity, peer));
    addMethod(server, CLUSTER_JOIN, { handler: join, streams: 'none' });
    const status = answerOnce(CLUSTER_STATUS, log, (_, peer) => cluster.status(peer));
    addMethod(server, CLUSTER_STATUS, { handler: status, streams: 'none' });
  }
  if (inference !== undefined) {
    const limits = { runtime, slowReaderLimitMs, repliesHeld: REPLIES_HELD_LIMIT, everyday: NOTHING_EVERYDAY };
    const handler = answerStreaming(INFERENCE_GENERATE, log, inference, limits);
    addMethod(server, INFERENCE_GENERATE, { handler, streams: 'reply' });
  }
  if (options.pack !== undefined) addPackService(server, options.pack, { runtime, slowReaderLimitMs }, log);
}

function stallMetadata(stalls: StallMeter): Metadata {
  const metadata = new Metadata();
  metadata.set(STALL_METADATA, String(Math.round(stalls.recentMs)));
  return metadata;
}

const NOTHING_EVERYDAY: ReadonlySet<ErrorCode> = new Set();
/** Everyday errors: a reader that gets QUEUE_FULL or PACK_INCOMPLETE from a node asks another one. */
const EVERYDAY_OF_PACK: ReadonlySet<ErrorCode> = new Set(['QUEUE_FULL', 'PACK_INCOMPLETE']);

function addPackService(
  server: Server,
  pack: NonNullable<RpcServerOptions['pack']>,
  { runtime, slowReaderLimitMs }: Pick<StreamingLimits, 'runtime' | 'slowReaderLimitMs'>,
  log: Logger,
): void {
  addMethod(server, PACK_DESCRIBE, {
    handler: answerOnce(PACK_DESCRIBE, log, async (_, peer) => pack.describe(peer)),
    streams: 'none',
  });
  const limits: StreamingLimits = {
    runtime,
    slowReaderLimitMs,
    repliesHeld: PACK_PIECES_HELD_LIMIT,
    everyday: EVERYDAY_OF_PACK,
  };
  const manifest = answerStreaming(PACK_MANIFEST, log, (...asked) => pack.manifest(...asked), limits);
  addMethod(server, PACK_MANIFEST, { handler: manifest, streams: 'reply' });
  const read = answerStreaming(PACK_READ, log, (...asked) => pack.read(...asked), limits);
  addMethod(server, PACK_READ, { handler: read, streams: 'reply' });
}

interface MethodBinding {
  handler: UntypedServiceImplementation[string];
  streams: 'none' | 'reply' | 'both';
}

const raw = (bytes: Buffer): Buffer => bytes;

/** Registers one method as a separate service. Messages stay bytes, so that our code answers decoding faults. */
function addMethod<Request, Reply>(server: Server, method: RpcMethod<Request, Reply>, binding: MethodBinding): void {
  const definition = {
    path: method.path,
    requestStream: binding.streams === 'both',
    responseStream: binding.streams !== 'none',
    requestSerialize: raw,
    requestDeserialize: raw,
    responseSerialize: raw,
    responseDeserialize: raw,
  };
  server.addService({ Method: definition }, { Method: binding.handler });
}

interface PeerServing {
  openStreams: Set<PeerStream<never, unknown>>;
  log: Logger;
  pace: StreamPace | null;
  runtime: Runtime;
  stalls: StallMeter;
}

function serveStreams<Request extends PeerMessage, Reply extends PeerMessage>(
  method: RpcMethod<Request, Reply>,
  serve: (stream: PeerStream<Reply, Request>, peer: PeerContext) => void,
  { openStreams, log, pace, runtime }: PeerServing,
): (call: RawServerStream) => void {
  return (call) => {
    const peer = call.getPeer();
    const side = {
      receiveLimitBytes: PLAIN_RECEIVE_LIMIT_BYTES,
      takeTensors: () => raiseReceiveLimit(call, MESSAGE_SIZE_LIMIT_BYTES),
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
    serve(stream, peerContextOf(call));
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
