import { Metadata, status, type ServiceError } from '@grpc/grpc-js';
import { waitForPeer } from '../runtime/peer-wait.js';
import type { Runtime, Timer } from '../runtime/runtime.js';
import type { Channel } from './channel.js';
import { NODE_IDENTIFY } from './codecs.js';

export interface KeepaliveTimes {
  /** Between an answer and the next question. */
  keepaliveIntervalMs: number;
  keepaliveTimeoutMs: number;
}

export interface KeepaliveOptions extends KeepaliveTimes {
  runtime: Runtime;
  /** Resolves when the peer has answered; rejects when the connection does not stand. */
  ask(): Promise<void>;
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
    this.timer = runtime.after(keepaliveIntervalMs, () => this.ask());
    this.timer.unref();
  }

  private ask(): void {
    const { runtime, keepaliveTimeoutMs } = this.options;
    const question = { askedMs: runtime.nowMs(), answered: false };
    this.timer = waitForPeer(runtime, keepaliveTimeoutMs, (silentMs) => {
      this.stopped = true;
      this.options.onSilent(silentMs);
    });
    this.timer.unref();
    this.options.ask().then(
      () => {
        question.answered = true;
        if (this.stopped) return;
        this.timer?.cancel();
        this.options.onAnswer?.(runtime.nowMs() - question.askedMs);
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
function askPeer({ client }: Channel): Promise<void> {
  return new Promise<void>((resolve, reject) => {
    const answered = (error: ServiceError | null): void => {
      if (error === null || ANSWERED.has(error.code)) resolve();
      else reject(error);
    };
    const request = NODE_IDENTIFY.request.encode({});
    client.makeUnaryRequest(NODE_IDENTIFY.path, raw, raw, request, new Metadata(), answered);
  });
}

/** As PeerKeepalive, of the daemon at the other end of a channel. */
export function watchPeer(
  runtime: Runtime,
  channel: Channel,
  { keepaliveIntervalMs, keepaliveTimeoutMs }: KeepaliveTimes,
  onSilent: (silentMs: number) => void,
  onAnswer: (roundTripMs: number) => void = () => undefined,
): PeerKeepalive {
  const ask = (): Promise<void> => askPeer(channel);
  return new PeerKeepalive({ runtime, keepaliveIntervalMs, keepaliveTimeoutMs, ask, onSilent, onAnswer });
}

/** "worker at 10.0.0.2:7602 has not answered for 0.7 s: it may be busy, stopped or cut off". */
export function silenceMessage(who: string, silentMs: number): string {
  return `${who} has not answered for ${(silentMs / 1000).toFixed(1)} s: it may be busy, stopped or cut off`;
}
