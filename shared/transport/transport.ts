/** How nodes reach one another: implemented by gRPC (grpc-transport.ts) and, in one process, by the simulator's network. */
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
import type { PeerStream } from './peer-stream.js';

/** What a node serves, opens and asks. Addresses are "host:port". */
export interface Transport {
  /** What the options name, and always Node.Identify. Throws PORT_UNAVAILABLE. */
  serve(options: RpcServerOptions): Promise<RpcServer>;
  /**
   * `receiveLimitBytes`: the largest reply that is taken; one with tensors if left out. A failure to connect comes through onClose as WORKER_LOST, within
   * CONNECT_TIMEOUT_MS.
   */
  openWorkerStream(
    address: string,
    network: NodeSettings['network'],
    receiveLimitBytes?: number,
  ): PeerStream<WorkerRequest, WorkerReply>;
  /** As openWorkerStream, with SHADOW_LOST. */
  openShadowStream(address: string, network: NodeSettings['network']): PeerStream<ShadowRequest, ShadowReply>;
  /** `idleLimitMs`: the longest wait for a next piece; PIECE_IDLE_LIMIT_MS if left out. */
  openPackSource(address: string, idleLimitMs?: number): PackSource;
  /** Who answers at the address. Rejects with TIMEOUT when nobody does in time, NO_MAIN when the connection fails, CANCELLED when the signal aborts. */
  identifyPeer(address: string, timeoutMs: number, signal?: AbortSignal): Promise<NodeIdentity>;
  /** Asks the daemon at the address what it has open. Rejects as identifyPeer does. */
  fetchCounts(address: string, timeoutMs: number): Promise<CountsReply>;
  joinMain(address: string, identity: NodeIdentity, timeoutMs: number): Promise<JoinReply>;
  fetchStatus(address: string, timeoutMs: number): Promise<StatusReply>;
  /**
   * Asks main for an answer. Ends after `finished`. Throws OdmoeError with main's code, NO_MAIN when the connection fails,
   * CANCELLED when the signal aborts. Leaving the loop early cancels the request at main.
   */
  generate(
    address: string,
    request: GenerateRequest,
    signal?: AbortSignal,
  ): AsyncGenerator<GenerateReply, void, undefined>;
}

export interface RpcServerOptions {
  host: string;
  /** 0: any free one. */
  port: number;
  network: NodeSettings['network'];
  log: Logger;
  identity: () => NodeIdentity;
  /** Counts what the daemon's process has open; left out: the daemon does not tell. */
  counts?: () => CountsReply;
  /** `peerHost` is the address that the peer came from. */
  worker?: (stream: PeerStream<WorkerReply, WorkerRequest>, peerHost: string) => void;
  shadow?: (stream: PeerStream<ShadowReply, ShadowRequest>) => void;
  cluster?: {
    /** `peerHost` is the address that the caller came from. */
    join(identity: NodeIdentity, peerHost: string): Promise<JoinReply>;
    status(): Promise<StatusReply>;
  };
  /** `signal` aborts when the client goes away. */
  inference?: (request: GenerateRequest, signal: AbortSignal) => AsyncIterable<GenerateReply>;
  /** What this daemon holds of its pack; each signal aborts when the reader goes away. */
  pack?: {
    describe(): PackDescription;
    manifest(request: ReadManifestRequest, signal: AbortSignal): AsyncIterable<PackPiece>;
    read(request: ReadPackRequest, signal: AbortSignal): AsyncIterable<PackPiece>;
  };
  /** How long a client may leave replies untaken; default SLOW_READER_LIMIT_MS. */
  slowReaderLimitMs?: number;
}

export interface RpcServer {
  /** "host:port" it listens on. */
  readonly address: string;
  readonly port: number;
  /** Tells who asks for its health that it takes no new requests; everything is served on. */
  tellLeaving(): void;
  /** Ends open streams in order, waits CLOSE_GRACE_MS, then forces. Idempotent. */
  stop(): Promise<void>;
}

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
