import type { NodeSettings } from '../settings/node-settings.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { GrpcConnection } from './grpc-connection.js';
import { openGrpcStream } from './grpc-stream.js';
import type { CallMethod, MethodRules, RepliesMethod, StreamMethod } from './methods.js';
import type { PeerStream } from './peer-stream.js';
import { startRpcServer } from './rpc-server.js';
import { SilenceBounds } from './silence-bound.js';
import type { PeerMessage, StreamPace } from './stream-pace.js';
import { TlsMismatches } from './tls-mismatch.js';
import type { ClusterTrust } from './trust/cluster-trust.js';
import type { CallLimits, RepliesLimits, RpcServer, RpcServerOptions, Transport } from './transport.js';

/** gRPC over TCP. */
export class GrpcTransport implements Transport {
  private readonly bounds = new SilenceBounds();
  private readonly mismatches: TlsMismatches;

  /**
   * @param pace the emulated pace of the streams between daemons; null: no emulation
   * @param trust this process's part in the trust of a cluster with an authority; null: connections are plaintext, and everybody is let in
   */
  constructor(
    private readonly runtime: Runtime,
    private readonly pace: StreamPace | null = null,
    private readonly trust: ClusterTrust | null = null,
  ) {
    this.mismatches = new TlsMismatches(runtime, trust);
  }

  serve(options: RpcServerOptions): Promise<RpcServer> {
    const { pace, trust } = this;
    return startRpcServer(this.runtime, options, { pace, trust });
  }

  stream<Request extends PeerMessage, Reply extends PeerMessage>(
    address: string,
    method: StreamMethod<Request, Reply>,
    network: NodeSettings['network'],
  ): PeerStream<Request, Reply> {
    const { runtime, pace, trust, mismatches } = this;
    const keepalive = this.bounds.keepaliveOf(address, network);
    return openGrpcStream(address, method, { runtime, keepalive, pace, trust, mismatches });
  }

  connect(address: string, rules: MethodRules): GrpcConnection {
    return new GrpcConnection(this.runtime, address, rules, { trust: this.trust, mismatches: this.mismatches });
  }

  async call<Request, Reply>(
    address: string,
    method: CallMethod<Request, Reply>,
    request: Request,
    limits: CallLimits,
  ): Promise<Reply> {
    const connection = this.connect(address, method);
    try {
      return await connection.call(method, request, limits);
    } finally {
      connection.close();
    }
  }

  async *replies<Request, Reply>(
    address: string,
    method: RepliesMethod<Request, Reply>,
    request: Request,
    limits: RepliesLimits,
  ): AsyncGenerator<Reply, void, undefined> {
    const connection = this.connect(address, method);
    try {
      yield* connection.replies(method, request, limits);
    } finally {
      connection.close();
    }
  }
}
