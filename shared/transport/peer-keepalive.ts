import { Metadata, status, type ServiceError } from '@grpc/grpc-js';
import { waitForPeer } from '../base/runtime/peer-wait.js';
import type { Runtime, Timer } from '../base/runtime/runtime.js';
import type { Channel } from './channel.js';
import { METHODS } from './methods.js';
import { STANDSTILL_METADATA } from './rpc-errors.js';
import type { StreamKeepalive } from './silence-bound.js';

export interface KeepaliveOptions extends StreamKeepalive {
  runtime: Runtime;
  /** Asks the peer. Resolves with the length of the peer's longest recent standstill; rejects if there is no connection. */
  ask(): Promise<number>;
  /** Called when the peer has answered. `roundTripMs`: time from question to answer. */
  onAnswer?(roundTripMs: number): void;
  /** Called once, when the peer has not answered for `silentMs`. */
  onSilent(silentMs: number): void;
}

/**
 * Asks a peer at intervals for a sign of life. A connection alone does not show that the process at its other end was stopped, or that a cable
 * was pulled. An answer that arrived during a standstill of this process must still be read (waitForPeer). The HTTP/2 ping of grpc-js would
 * count the peer as dead in that case.
 */
export class PeerKeepalive {
  private timer: Timer | null = null;
  private stopped = false;

  constructor(private readonly options: KeepaliveOptions) {}

  /** Call this when the connection stands. Does nothing after stop(). */
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
      (peerStandstillMs) => {
        if (this.stopped) return;
        this.timer?.cancel();
        const roundTripMs = runtime.nowMs() - askedMs;
        bound.answered(roundTripMs, Math.max(latenessMs, peerStandstillMs));
        this.options.onAnswer?.(roundTripMs);
        this.wait();
      },
      // The stream over the same connection reports the failure, or the time limit ends the wait.
      () => undefined,
    );
  }
}

/** Status codes of failed calls that a peer did answer: it does not serve the call, or it could not. */
const ANSWERED: ReadonlySet<number> = new Set([status.UNIMPLEMENTED, status.INTERNAL, status.INVALID_ARGUMENT]);

const raw = (bytes: Buffer): Buffer => bytes;

/** Asks the daemon at the other end of the channel for its identity. Resolves with the peer's longest recent standstill in ms. */
function askPeer({ client }: Channel): Promise<number> {
  return new Promise<number>((resolve, reject) => {
    let standstillMs = 0;
    const answered = (error: ServiceError | null): void => {
      if (error === null || ANSWERED.has(error.code)) resolve(standstillMs);
      else reject(error);
    };
    const request = METHODS.node.identify.request.encode({});
    const call = client.makeUnaryRequest(METHODS.node.identify.path, raw, raw, request, new Metadata(), answered);
    call.on('metadata', (metadata: Metadata) => (standstillMs = standstillOf(metadata)));
  });
}

/** The peer's longest recent standstill in ms, from its metadata; 0 if there is no readable value. */
export function standstillOf(metadata: Metadata): number {
  const [text] = metadata.get(STANDSTILL_METADATA);
  return typeof text === 'string' && /^\d{1,9}$/.test(text) ? Number(text) : 0;
}

/** A PeerKeepalive for the daemon at the other end of a channel. */
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
