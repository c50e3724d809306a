/** Communication between nodes: implemented by gRPC (grpc-transport.ts) and, in one process, by the simulator's network. */
import type { NodeSettings } from '../settings/node-settings.js';
import type { Logger } from '../base/log/logger.js';
import type {
  CountsReply,
  GenerateReply,
  GenerateRequest,
  JoinReply,
  NodeIdentity,
  PackDescription,
  PackPiece,
  ReadManifestRequest,
  ReadPackRequest,
  ShadowReply,
  ShadowRequest,
  StatusReply,
  WorkerReply,
  WorkerRequest,
} from '../wire/messages.js';
import type { PeerContext } from './peer-context.js';
import type { PeerStream } from './peer-stream.js';

/** The services, streams and calls of a node. Addresses are "host:port". */
export interface Transport {
  /** Serves the services in the options, and always Node.Identify. Throws PORT_UNAVAILABLE. */
  serve(options: RpcServerOptions): Promise<RpcServer>;
  /**
   * `receiveLimitBytes`: the largest reply that is received; the default admits tensors. A failure to connect is reported to onClose as
   * WORKER_LOST within CONNECT_TIMEOUT_MS.
   */
  openWorkerStream(
    address: string,
    network: NodeSettings['network'],
    receiveLimitBytes?: number,
  ): PeerStream<WorkerRequest, WorkerReply>;
  /** As openWorkerStream, with SHADOW_LOST. */
  openShadowStream(address: string, network: NodeSettings['network']): PeerStream<ShadowRequest, ShadowReply>;
  /** `idleLimitMs`: the longest wait for a next piece; default PIECE_IDLE_LIMIT_MS. */
  openPackSource(address: string, idleLimitMs?: number): PackSource;
  /**
   * The identity of the daemon at the address. Rejects with TIMEOUT if no daemon answers in time, NO_MAIN if the connection fails, CANCELLED if
   * the signal aborts.
   */
  identifyPeer(address: string, timeoutMs: number, signal?: AbortSignal): Promise<NodeIdentity>;
  /** Asks the daemon at the address for the counts of the things that it has open. Rejects as identifyPeer does. */
  fetchCounts(address: string, timeoutMs: number): Promise<CountsReply>;
  joinMain(address: string, identity: NodeIdentity, timeoutMs: number): Promise<JoinReply>;
  fetchStatus(address: string, timeoutMs: number): Promise<StatusReply>;
  /**
   * Asks main for an answer. Ends after `finished`. Throws OdmoeError with main's code, NO_MAIN if the connection fails, CANCELLED if the signal
   * aborts. A caller that leaves the loop early cancels the request at main.
   */
  generate(
    address: string,
    request: GenerateRequest,
    signal?: AbortSignal,
  ): AsyncGenerator<GenerateReply, void, undefined>;
}

/** Each handler gets its caller as the last argument. */
export interface RpcServerOptions {
  host: string;
  /** 0: any free port. */
  port: number;
  network: NodeSettings['network'];
  log: Logger;
  identity: (peer: PeerContext) => NodeIdentity;
  /** Counts the things that the daemon's process has open; absent: the daemon does not report counts. */
  counts?: (peer: PeerContext) => CountsReply;
  worker?: (stream: PeerStream<WorkerReply, WorkerRequest>, peer: PeerContext) => void;
  shadow?: (stream: PeerStream<ShadowReply, ShadowRequest>, peer: PeerContext) => void;
  cluster?: {
    join(identity: NodeIdentity, peer: PeerContext): Promise<JoinReply>;
    status(peer: PeerContext): Promise<StatusReply>;
  };
  /** `signal` aborts when the client goes away. */
  inference?: (request: GenerateRequest, signal: AbortSignal, peer: PeerContext) => AsyncIterable<GenerateReply>;
  /** The parts of the pack that this daemon holds. Each signal aborts when the reader goes away. */
  pack?: {
    describe(peer: PeerContext): PackDescription;
    manifest(request: ReadManifestRequest, signal: AbortSignal, peer: PeerContext): AsyncIterable<PackPiece>;
    read(request: ReadPackRequest, signal: AbortSignal, peer: PeerContext): AsyncIterable<PackPiece>;
  };
  /** Longest time that a client may leave replies unread; default SLOW_READER_LIMIT_MS. */
  slowReaderLimitMs?: number;
}

export interface RpcServer {
  /** "host:port" at which the server listens. */
  readonly address: string;
  readonly port: number;
  /** Reports in health checks that the daemon takes no new requests. All calls are still served. */
  tellLeaving(): void;
  /** Ends open streams in order, waits CLOSE_GRACE_MS, then forces. Idempotent. */
  stop(): Promise<void>;
}

/**
 * A daemon from which pieces of a pack can be read. Calls reject with the peer's code; with WORKER_LOST if the connection fails (the source is
 * then useless); and if no piece comes within the idle limit.
 */
export interface PackSource {
  describe(timeoutMs: number): Promise<PackDescription>;
  /** The pieces come at the pace of the loop over them. A caller that leaves the loop ends the call. */
  read(request: ReadPackRequest, signal: AbortSignal): AsyncIterable<Uint8Array>;
  manifest(packDigest: string, signal: AbortSignal): AsyncIterable<Uint8Array>;
  close(): void;
}
