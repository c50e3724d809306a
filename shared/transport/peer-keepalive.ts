import { Metadata, status, type ServiceError } from '@grpc/grpc-js';
import { waitForPeer } from '../base/runtime/peer-wait.js';
import type { Runtime, Timer } from '../base/runtime/runtime.js';
import type { Channel } from './channel.js';
import { NODE_IDENTIFY } from '../wire/codecs.js';
import { STALL_METADATA } from './rpc-errors.js';
import type { StreamKeepalive } from './silence-bound.js';

export interface KeepaliveOptions extends StreamKeepalive {
  runtime: Runtime;
  /** Resolves when the peer has answered, with how long it has lately stood still at a time; rejects when the connection does not stand. */
  ask(): Promise<number>;
  /** The peer has answered, so long after it was asked. */
  onAnswer?(roundTripMs: number): void;
  /** The peer has not answered for so long. Called once. */
  onSilent(silentMs: number): void;
}

/**
 * Asks a peer again and again whether it is there: a connection alone never tells that the process at its other end has been stopped, or
 * that a cable was pulled. An answer that came while this process stood still is still to be read (waitForPeer). HTTP/2's own ping, in
 * grpc-js, would call the peer dead then.
 */
export class PeerKeepalive {
  private timer: Timer | null = null;
  private stopped = false;

  constructor(private readonly options: KeepaliveOptions) {}

  /** The connection stands. Does nothing after stop(). */
  start(): void {
    if (!this.stopped) this.wait();
  }

  /** Idempotent. */
  stop(): void {
    this.stopped = true;
    this.timer?.cancel();
  }

  private wait(): void {
    const { runtime, keepaliveIntervalMs } = this.options;
    const dueMs = runtime.nowMs() + keepaliveIntervalMs;
    this.timer = runtime.after(keepaliveIntervalMs, () => this.ask(Math.max(0, runtime.nowMs() - dueMs)));
    this.timer.unref();
  }

  private ask(latenessMs: number): void {
    const { runtime, bound } = this.options;
    const askedMs = runtime.nowMs();
    this.timer = waitForPeer(runtime, bound.limitMs, (silentMs) => {
      this.stopped = true;
      bound.silent();
      this.options.onSilent(silentMs);
    });
    this.timer.unref();
    this.options.ask().then(
      (peerStallMs) => {
        if (this.stopped) return;
        this.timer?.cancel();
        const roundTripMs = runtime.nowMs() - askedMs;
        bound.answered(roundTripMs, Math.max(latenessMs, peerStallMs));
        this.options.onAnswer?.(roundTripMs);
        this.wait();
      },
      // The stream over the same connection tells what happened to it, or the time runs out.
      () => undefined,
    );
  }
}

/** What a failed call tells of a peer that did answer it: it serves no such call, or could not. */
const ANSWERED: ReadonlySet<number> = new Set([status.UNIMPLEMENTED, status.INTERNAL, status.INVALID_ARGUMENT]);

const raw = (bytes: Buffer): Buffer => bytes;

/** Asks the daemon at the other end of the channel who it is. */
function askPeer({ client }: Channel): Promise<number> {
  return new Promise<number>((resolve, reject) => {
    let stallMs = 0;
    const answered = (error: ServiceError | null): void => {
      if (error === null || ANSWERED.has(error.code)) resolve(stallMs);
      else reject(error);
    };
    const request = NODE_IDENTIFY.request.encode({});
    const call = client.makeUnaryRequest(NODE_IDENTIFY.path, raw, raw, request, new Metadata(), answered);
    call.on('metadata', (metadata: Metadata) => (stallMs = stallOf(metadata)));
  });
}

/** What a peer says of its own standstills; 0 where it says nothing that can be read. */
export function stallOf(metadata: Metadata): number {
  const [text] = metadata.get(STALL_METADATA);
  return typeof text === 'string' && /^\d{1,9}$/.test(text) ? Number(text) : 0;
}

/** As PeerKeepalive, of the daemon at the other end of a channel. */
export function watchPeer(
  runtime: Runtime,
  channel: Channel,
  { keepaliveIntervalMs, bound }: StreamKeepalive,
  onSilent: (silentMs: number) => void,
  onAnswer: (roundTripMs: number) => void = () => undefined,
): PeerKeepalive {
  const ask = (): Promise<number> => askPeer(channel);
  return new PeerKeepalive({ runtime, keepaliveIntervalMs, bound, ask, onSilent, onAnswer });
}

/** "worker at 10.0.0.2:7602 has not answered for 0.7 s: it may be busy, stopped or cut off". */
export function silenceMessage(who: string, silentMs: number): string {
  return `${who} has not answered for ${(silentMs / 1000).toFixed(1)} s: it may be busy, stopped or cut off`;
}
