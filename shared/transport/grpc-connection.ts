import { type ClientReadableStream, Metadata } from '@grpc/grpc-js';
import { OdmoeError, toOdmoeError } from '../base/errors/odmoe-error.js';
import { onAbort } from '../base/runtime/living.js';
import { waitForPeer } from '../base/runtime/peer-wait.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { MAIN_CHECK } from '../wire/limits.js';
import { ArrivedReplies } from './arrived-replies.js';
import { openChannel, type Channel } from './channel.js';
import type { CallMethod, MethodRules, RepliesMethod } from './methods.js';
import { silenceMessage, watchPeer } from './peer-keepalive.js';
import { cancelledCall, fromServiceError, notInTime } from './rpc-errors.js';
import { SilenceBound } from './silence-bound.js';
import type { TlsMismatches } from './tls-mismatch.js';
import type { ClusterTrust } from './trust/cluster-trust.js';
import type { CallLimits, Connection, RepliesLimits } from './transport.js';

const raw = (bytes: Buffer): Buffer => bytes;

/** `trust` null: the connection is plaintext. */
export interface ConnectionSecurity {
  readonly trust: ClusterTrust | null;
  readonly mismatches: TlsMismatches;
}

/** Calls over one channel to a peer. */
export class GrpcConnection implements Connection {
  private readonly channel: Channel;
  /** Ends each running call, with the reason. */
  private readonly running = new Set<(reason: OdmoeError) => void>();

  constructor(
    private readonly runtime: Runtime,
    private readonly address: string,
    rules: MethodRules,
    private readonly security: ConnectionSecurity,
  ) {
    this.channel = openChannel(address, runtime, rules, security.trust);
    this.channel.onRefused((reason) => {
      for (const end of [...this.running]) end(reason);
    });
  }

  async call<Request, Reply>(method: CallMethod<Request, Reply>, request: Request, limits: CallLimits): Promise<Reply> {
    try {
      return method.reply.decode(await this.exchange(method.path, method.request.encode(request), limits));
    } catch (thrown) {
      throw await this.explained(fromServiceError(thrown, method, this.address), method);
    }
  }

  private async exchange(path: string, request: Buffer, { timeoutMs, signal }: CallLimits): Promise<Buffer> {
    const { runtime, address } = this;
    if (signal?.aborted === true) throw cancelledCall(address);
    return new Promise<Buffer>((resolve, reject) => {
      // A deadline of grpc-js would be over at once when this process goes on after a standstill.
      const silence = waitForPeer(runtime, timeoutMs, () => {
        reject(notInTime(address));
        call.cancel();
      });
      const stopListening = onAbort(signal, () => {
        reject(cancelledCall(address));
        call.cancel();
      });
      const end = (reason: OdmoeError): void => {
        reject(reason);
        call.cancel();
      };
      this.running.add(end);
      const call = this.channel.client.makeUnaryRequest(path, raw, raw, request, (error, reply) => {
        this.running.delete(end);
        silence.cancel();
        stopListening();
        if (error !== null) reject(error);
        else resolve(reply ?? Buffer.alloc(0));
      });
    });
  }

  async *replies<Request, Reply>(
    method: RepliesMethod<Request, Reply>,
    request: Request,
    { signal, idleLimitMs }: RepliesLimits,
  ): AsyncGenerator<Reply, void, undefined> {
    const { runtime, address, channel } = this;
    const bytes = method.request.encode(request);
    const call = channel.client.makeServerStreamRequest(method.path, raw, raw, bytes, new Metadata());
    const cancel = (): void => {
      call.cancel();
    };
    const leave = onAbort(signal, cancel);
    if (signal?.aborted === true) cancel();
    let lost: OdmoeError | null = null;
    const end = (reason: OdmoeError): void => {
      lost = reason;
      cancel();
    };
    this.running.add(end);
    const check = {
      keepaliveIntervalMs: MAIN_CHECK.keepaliveIntervalMs,
      bound: new SilenceBound(MAIN_CHECK.keepaliveTimeoutMs),
    };
    const keepalive = watchPeer(runtime, channel, check, (silentMs) => {
      const peer = method.servedBy === 'main' ? `main at ${address}` : address;
      end(new OdmoeError(method.lostCode, silenceMessage(peer, silentMs)));
    });
    if (idleLimitMs === undefined) keepalive.start();
    try {
      for await (const reply of readReplies(call, address, method, runtime, idleLimitMs))
        yield method.reply.decode(reply);
    } catch (thrown) {
      throw lost ?? (await this.explained(toOdmoeError(thrown), method));
    } finally {
      this.running.delete(end);
      keepalive.stop();
      leave();
      call.cancel();
    }
  }

  private explained(error: OdmoeError, rules: MethodRules): Promise<OdmoeError> {
    return this.security.mismatches.explained(error, this.address, rules);
  }

  close(): void {
    this.channel.close();
  }
}

/** The replies that grpc-js receives. While `heldByCaller` of them are unread, it receives no more. A reader that leaves must cancel the call. */
export function readReplies(
  call: ClientReadableStream<Buffer>,
  peer: string,
  rules: Pick<RepliesMethod<object, object>, 'lostCode' | 'servedBy' | 'heldByCaller'>,
  runtime: Runtime,
  idleLimitMs = Infinity,
): AsyncGenerator<Buffer, void, undefined> {
  const { heldByCaller } = rules;
  const replies = new ArrivedReplies(runtime, peer, rules, idleLimitMs);
  let error: OdmoeError | null = null;
  call.on('data', (bytes: Buffer) => {
    replies.add(bytes);
    if (replies.unread >= heldByCaller) call.pause();
  });
  call.on('error', (thrown: unknown) => {
    error = fromServiceError(thrown, rules, peer);
  });
  // grpc-js may emit 'error' beside 'end'; this lets that error arrive first.
  call.on('end', () => runtime.nextTurn(() => replies.end(error)));
  return replies.read(() => {
    if (call.isPaused() && replies.unread < heldByCaller / 2) call.resume();
  });
}
