/** A worker or shadow to which main connects, and which answers with any bytes that the caller chooses. */
import { type MethodDefinition, Server, ServerCredentials, type ServerDuplexStream } from '@grpc/grpc-js';
import { runtime, transport } from '../../cli/client/process-runtime.js';
import type { NodeIdentity, ShadowReply, WorkerReply } from '../../shared/wire/messages.js';
import type { LimitsCluster } from './limits-cluster.js';
import { raw } from './raw-calls.js';
import { METHODS } from '../../shared/transport/methods.js';
import { joinMain } from '../../shared/transport/node-clients.js';

const JOIN_TIMEOUT_MS = 10_000;
export type FalseStream = ServerDuplexStream<Buffer, Buffer>;
/** The answers of the false peer: when main opens a stream, and at each message from main. */
export interface FalseManner {
  opened?: (stream: FalseStream, identity: NodeIdentity) => void;
  heard?: (stream: FalseStream, bytes: Buffer) => void;
}

export class FalsePeer {
  private readonly server = new Server({ 'grpc.max_receive_message_length': -1 });
  /** Numbers of streams that main has opened, and of streams that have ended. */
  streams = 0;
  ends = 0;

  private constructor(
    private readonly role: 'worker' | 'shadow',
    private readonly manner: FalseManner,
  ) {}

  /** Starts to listen, and asks main to join the cluster. Throws the errors of joining. */
  static async join(
    cluster: LimitsCluster,
    role: 'worker' | 'shadow',
    id: string,
    manner: FalseManner,
  ): Promise<FalsePeer> {
    const peer = new FalsePeer(role, manner);
    const ROLES = { worker: 'ROLE_WORKER', shadow: 'ROLE_SHADOW' } as const;
    const identity = await cluster.identityLikeMain({ id, role: ROLES[role] });
    identity.address = await peer.listen(identity);
    await joinMain(transport, cluster.addressOf('main'), identity, JOIN_TIMEOUT_MS);
    return peer;
  }

  stop(): void {
    this.server.forceShutdown();
  }

  /** Waits until `count` streams have ended; false: not within the time. */
  async streamsEnd(count: number, limitMs: number): Promise<boolean> {
    const began = performance.now();
    while (this.ends < count && performance.now() - began < limitMs) await runtime.sleep(10);
    return this.ends >= count;
  }

  private listen(identity: NodeIdentity): Promise<string> {
    const serve = (stream: FalseStream): void => this.serve(stream, identity);
    const identify = (_call: unknown, reply: (error: null, bytes: Buffer) => void): void =>
      reply(null, METHODS.node.identify.reply.encode(identity));
    const { path } = this.role === 'worker' ? METHODS.worker.serve : METHODS.shadow.serve;
    this.server.addService({ Method: methodAt(path, true) }, { Method: serve });
    this.server.addService({ Method: methodAt(METHODS.node.identify.path, false) }, { Method: identify });
    return new Promise((resolve, reject) => {
      this.server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, port) => {
        if (error === null) {
          identity.address = `127.0.0.1:${port}`;
          resolve(identity.address);
        } else reject(error);
      });
    });
  }

  private serve(stream: FalseStream, identity: NodeIdentity): void {
    this.streams += 1;
    stream.on('error', () => undefined);
    stream.on('close', () => (this.ends += 1));
    stream.on('cancelled', () => stream.end());
    stream.on('end', () => stream.end());
    stream.on('data', (bytes: Buffer) => this.manner.heard?.(stream, bytes));
    this.manner.opened?.(stream, identity);
  }
}

export function workerReply(reply: WorkerReply): Buffer {
  return METHODS.worker.serve.reply.encode(reply);
}

export function shadowReply(reply: ShadowReply): Buffer {
  return METHODS.shadow.serve.reply.encode(reply);
}

function methodAt(path: string, streams: boolean): MethodDefinition<Buffer, Buffer> {
  const bytes = { requestSerialize: raw, requestDeserialize: raw, responseSerialize: raw, responseDeserialize: raw };
  return { path, requestStream: streams, responseStream: streams, ...bytes };
}
