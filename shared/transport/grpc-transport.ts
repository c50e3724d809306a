import type { NodeSettings } from '../settings/node-settings.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { fetchCounts, fetchStatus, generate, identifyPeer, joinMain } from './calls.js';
import { MESSAGE_SIZE_LIMIT_BYTES, PIECE_IDLE_LIMIT_MS } from '../wire/limits.js';
import type {
  CountsReply,
  GenerateReply,
  GenerateRequest,
  JoinReply,
  NodeIdentity,
  ShadowReply,
  ShadowRequest,
  StatusReply,
  WorkerReply,
  WorkerRequest,
} from '../wire/messages.js';
import { openPackSource } from './pack-client.js';
import { openShadowStream, openWorkerStream } from './peer-client.js';
import type { PeerStream } from './peer-stream.js';
import { startRpcServer } from './rpc-server.js';
import { SilenceBounds } from './silence-bound.js';
import type { StreamPace } from './stream-pace.js';
import type { PackSource, RpcServer, RpcServerOptions, Transport } from './transport.js';

/** gRPC over TCP. */
export class GrpcTransport implements Transport {
  private readonly bounds = new SilenceBounds();

  /** `pace`: the emulated pace of the streams between daemons; null: no emulation. */
  constructor(
    private readonly runtime: Runtime,
    private readonly pace: StreamPace | null = null,
  ) {}

  serve(options: RpcServerOptions): Promise<RpcServer> {
    return startRpcServer(this.runtime, options, this.pace);
  }

  openWorkerStream(
    address: string,
    network: NodeSettings['network'],
    receiveLimitBytes = MESSAGE_SIZE_LIMIT_BYTES,
  ): PeerStream<WorkerRequest, WorkerReply> {
    return openWorkerStream(
      this.runtime,
      address,
      receiveLimitBytes,
      this.bounds.keepaliveOf(address, network),
      this.pace,
    );
  }

  openShadowStream(address: string, network: NodeSettings['network']): PeerStream<ShadowRequest, ShadowReply> {
    return openShadowStream(this.runtime, address, this.bounds.keepaliveOf(address, network), this.pace);
  }

  openPackSource(address: string, idleLimitMs = PIECE_IDLE_LIMIT_MS): PackSource {
    return openPackSource(this.runtime, address, idleLimitMs);
  }

  identifyPeer(address: string, timeoutMs: number, signal?: AbortSignal): Promise<NodeIdentity> {
    return identifyPeer(this.runtime, address, timeoutMs, signal);
  }

  fetchCounts(address: string, timeoutMs: number): Promise<CountsReply> {
    return fetchCounts(this.runtime, address, timeoutMs);
  }

  joinMain(address: string, identity: NodeIdentity, timeoutMs: number): Promise<JoinReply> {
    return joinMain(this.runtime, address, identity, timeoutMs);
  }

  fetchStatus(address: string, timeoutMs: number): Promise<StatusReply> {
    return fetchStatus(this.runtime, address, timeoutMs);
  }

  generate(
    address: string,
    request: GenerateRequest,
    signal?: AbortSignal,
  ): AsyncGenerator<GenerateReply, void, undefined> {
    return generate(this.runtime, address, request, signal);
  }
}
