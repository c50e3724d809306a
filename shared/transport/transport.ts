/** Communication between nodes: implemented by gRPC (grpc-transport.ts) and, in one process, by the simulator's network. */
import type { TLSSocket } from 'node:tls';
import type { NodeSettings } from '../settings/node-settings.js';
import type { Logger } from '../base/log/logger.js';
import type { CallMethod, MethodRules, RepliesMethod, StreamMethod } from './methods.js';
import type { PeerStream } from './peer-stream.js';
import type { Services } from './served-methods.js';
import type { PeerMessage } from './stream-pace.js';

/**
 * The streams and calls of a node, by the table of methods. Addresses are "host:port". node-clients.ts has a function for each method that a node
 * asks another for.
 */
export interface Transport {
  /** Serves the methods in the options. Throws PORT_UNAVAILABLE. */
  serve(options: RpcServerOptions): Promise<RpcServer>;
  /**
   * Both ends may send messages at any time. A failure to connect is reported to onClose with the method's lost code, within CONNECT_TIMEOUT_MS.
   * `network`: times of the keepalive.
   */
  stream<Request extends PeerMessage, Reply extends PeerMessage>(
    address: string,
    method: StreamMethod<Request, Reply>,
    network: NodeSettings['network'],
  ): PeerStream<Request, Reply>;
  /** One call over a connection of its own, as Connection.call. */
  call<Request, Reply>(
    address: string,
    method: CallMethod<Request, Reply>,
    request: Request,
    limits: CallLimits,
  ): Promise<Reply>;
  /** One request with many replies over a connection of its own, as Connection.replies. */
  replies<Request, Reply>(
    address: string,
    method: RepliesMethod<Request, Reply>,
    request: Request,
    limits: RepliesLimits,
  ): AsyncGenerator<Reply, void, undefined>;
  /** A connection for several calls of methods with these rules. */
  connect(address: string, rules: MethodRules): Connection;
}

/** Calls reject with the peer's code, or with the method's lost code if the connection fails; the connection is then useless. */
export interface Connection {
  /** Rejects with TIMEOUT if no reply comes in time, and with CANCELLED if the signal aborts. */
  call<Request, Reply>(method: CallMethod<Request, Reply>, request: Request, limits: CallLimits): Promise<Reply>;
  /**
   * The replies come in order, at the pace of the loop over them, and all of them before an error. A caller that leaves the loop ends the call at
   * the peer. Throws CANCELLED if the signal aborts.
   */
  replies<Request, Reply>(
    method: RepliesMethod<Request, Reply>,
    request: Request,
    limits: RepliesLimits,
  ): AsyncGenerator<Reply, void, undefined>;
  close(): void;
}

export interface CallLimits {
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

export interface RepliesLimits {
  readonly signal?: AbortSignal | undefined;
  /** Longest wait for a next reply. Absent: any, as long as the peer answers the questions of the keepalive. */
  readonly idleLimitMs?: number;
}

/** The handlers of the services that a daemon has. Every daemon answers Node.Identify; counts are those of the things that its process has open. */
export interface RpcServerOptions extends Partial<Omit<Services, 'node'>> {
  host: string;
  /** 0: any free port. */
  port: number;
  network: NodeSettings['network'];
  log: Logger;
  node: Pick<Services['node'], 'identify'> & Partial<Services['node']>;
  /** Takes the connections of machines that ask to be let in; left out: this daemon lets nobody in. Only in a cluster with an authority. */
  enrol?: ((socket: TLSSocket) => void) | undefined;
  /** Path of a Unix socket for operators on this host; left out: there is none. Only in a cluster with an authority. */
  operatorSocket?: string | undefined;
  /** Longest time that a client may leave replies unread; default SLOW_READER_LIMIT_MS. */
  slowReaderLimitMs?: number;
  /** Longest time in which a request comes whole; default REQUEST_LIMIT_MS. */
  requestLimitMs?: number;
}

export interface RpcServer {
  /** "host:port" at which the server listens. */
  readonly address: string;
  readonly port: number;
  /** The number of open connections from the node whose certificate names this id. In a cluster without an authority there are none. */
  connectionsFrom(id: string): number;
  /** Reports in health checks that the daemon takes no new requests. All calls are still served. */
  tellLeaving(): void;
  /** Ends open streams in order, waits CLOSE_GRACE_MS, then forces. Idempotent. */
  stop(): Promise<void>;
}
