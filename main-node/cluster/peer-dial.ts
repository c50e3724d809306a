import { isErrorCode, OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { NodeIdentity, Refusal, Welcome } from '../../shared/wire/messages.js';
import { identityRefusal } from '../../shared/transport/call-permission.js';
import { checkPeer } from '../../shared/transport/peer-check.js';
import { HANDSHAKE_TIMEOUT_MS } from '../../shared/wire/limits.js';
import type { PeerStream } from '../../shared/transport/peer-stream.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';

/** Longest time for a peer to send its identity. */
export const IDENTIFY_TIMEOUT_MS = 2000;
/** Longest pause between two attempts. */
export const MAX_RECONNECT_DELAY_MS = 2000;

/** The first message of every reply stream. */
export type FirstReply =
  | { kind: 'welcome'; welcome: Welcome }
  | { kind: 'refusal'; refusal: Refusal }
  | { kind: string };

/** A link that has taken over a stream. */
export interface ServedLink<Reply> {
  receive(reply: Reply): void;
  streamClosed(error: OdmoeError | null): void;
}

/**
 * Sends a hello and takes the welcome; then the stream belongs to the link that `serve` makes. Resolves when the stream has ended. Rejects when the
 * two nodes do not belong together or the peer does not answer.
 */
export async function serveStream<Request, Reply extends FirstReply>(
  stream: PeerStream<Request, Reply>,
  hello: Request,
  own: NodeIdentity,
  runtime: Runtime,
  serve: (peer: NodeIdentity, welcome: Welcome) => ServedLink<Reply>,
): Promise<void> {
  const { promise: ended, settle } = closing(stream);
  // A peer may send more right behind its welcome; these messages wait here for the link.
  const early: Reply[] = [];
  const welcome = await firstReply(stream, hello, { ended, early, runtime });
  const refusal =
    identityRefusal(welcome.identity, { caller: stream.certifiedPeer }) ?? checkPeer(own, welcome.identity);
  if (refusal !== null) {
    const error = refusalError(refusal);
    stream.close(error);
    throw error;
  }
  const link = makeLink(stream, () => serve(welcome.identity, welcome));
  // This comes first, so that the link is notified of its end also if one of the early replies is refused.
  settle((error) => {
    link.streamClosed(error);
  });
  stream.onMessage((reply) => {
    link.receive(reply);
  });
  makeLink(stream, () => early.forEach((reply) => link.receive(reply)));
  await ended;
}

/** Makes the link. If that fails, the stream is closed, as it is of no use. */
function makeLink<Link>(stream: PeerStream<never, unknown>, make: () => Link): Link {
  try {
    return make();
  } catch (thrown) {
    stream.close(toOdmoeError(thrown));
    throw thrown;
  }
}

/** The end of a stream. One listener is called at once, also if it is set later; and the promise resolves. */
function closing(stream: PeerStream<never, unknown>): {
  promise: Promise<OdmoeError | null>;
  settle: (listener: (error: OdmoeError | null) => void) => void;
} {
  let outcome: { error: OdmoeError | null } | null = null;
  let listener: ((error: OdmoeError | null) => void) | null = null;
  const promise = new Promise<OdmoeError | null>((resolve) => {
    stream.onClose((error) => {
      outcome = { error };
      listener?.(error);
      resolve(error);
    });
  });
  return {
    promise,
    settle: (added) => {
      listener = added;
      if (outcome !== null) added(outcome.error);
    },
  };
}

interface Handshake<Reply> {
  ended: Promise<OdmoeError | null>;
  /** Takes the messages that come after the first reply. */
  early: Reply[];
  runtime: Runtime;
}

async function firstReply<Request, Reply extends FirstReply>(
  stream: PeerStream<Request, Reply>,
  hello: Request,
  { ended, early, runtime }: Handshake<Reply>,
): Promise<Welcome> {
  let timer: Timer | null = null;
  const reply = await Promise.race([
    new Promise<FirstReply>((resolve) => {
      stream.onMessage((first) => {
        stream.onMessage((reply) => early.push(reply));
        resolve(first);
      });
      stream.send(hello);
    }),
    ended.then((error): FirstReply => {
      throw error ?? new OdmoeError('NODE_REFUSED', 'the peer ended the stream without a word');
    }),
    new Promise<FirstReply>((_, reject) => {
      timer = waitForPeer(runtime, HANDSHAKE_TIMEOUT_MS, () => {
        const error = new OdmoeError('TIMEOUT', `no welcome within ${HANDSHAKE_TIMEOUT_MS} ms`);
        reject(error);
        stream.close(error);
      });
    }),
  ]).finally(() => {
    timer?.cancel();
  });
  if ('welcome' in reply) return reply.welcome;
  const error =
    'refusal' in reply
      ? refusalError(reply.refusal)
      : new OdmoeError('PROTOCOL_VIOLATION', `the peer answered hello with ${reply.kind}`);
  stream.close(error);
  throw error;
}

export function refusalError(refusal: Refusal): OdmoeError {
  return new OdmoeError(isErrorCode(refusal.code) ? refusal.code : 'NODE_REFUSED', refusal.message);
}

export interface PeerDialOptions {
  address: string;
  reconnectDelayMs: number;
  /** The address is forgotten if nothing has answered there for so long; null: never. */
  forgetAfterMs: number | null;
  /** Connects and serves until the stream has ended; `connected` is called once the peer has been welcomed. Rejects on failure. */
  attempt(connected: () => void): Promise<void>;
  onFailure(error: OdmoeError): void;
  onForgotten(): void;
  runtime: Runtime;
}

/** Keeps one address connected: dials, serves, and dials again with pauses that grow up to a bound. */
export class PeerDial {
  private stopped = false;
  private endPause: (() => void) | null = null;
  /** Runs while nothing answers. */
  private silence: Timer | null = null;
  private isLeft = false;
  private delayMs: number;
  readonly finished: Promise<void>;

  constructor(private readonly options: PeerDialOptions) {
    this.delayMs = options.reconnectDelayMs;
    this.awaitAnswer();
    this.finished = this.run().finally(() => this.silence?.cancel());
  }

  /** The peer has been seen again: tries at once. */
  wake(): void {
    this.delayMs = this.options.reconnectDelayMs;
    this.endPause?.();
  }

  /** Makes no further attempt; a running one ends with its stream. */
  stop(): void {
    this.stopped = true;
    this.endPause?.();
  }

  private async run(): Promise<void> {
    while (!this.stopped) {
      try {
        await this.options.attempt(() => {
          this.delayMs = this.options.reconnectDelayMs;
          this.silence?.cancel();
        });
        this.awaitAnswer();
      } catch (thrown) {
        if (this.isStopped()) return;
        this.options.onFailure(toOdmoeError(thrown));
      }
      if (this.isStopped()) return;
      if (this.isLeft) {
        this.options.onForgotten();
        return;
      }
      await this.pause();
    }
  }

  private awaitAnswer(): void {
    const { forgetAfterMs, runtime } = this.options;
    this.silence?.cancel();
    this.isLeft = false;
    if (forgetAfterMs === null) return;
    this.silence = waitForPeer(runtime, forgetAfterMs, () => (this.isLeft = true));
    this.silence.unref();
  }

  /** A method, because after an await the compiler would take the loop's condition as still true. */
  private isStopped(): boolean {
    return this.stopped;
  }

  private pause(): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.options.runtime.after(this.delayMs, () => {
        this.endPause?.();
      });
      this.delayMs = Math.min(MAX_RECONNECT_DELAY_MS, this.delayMs * 2);
      this.endPause = (): void => {
        timer.cancel();
        this.endPause = null;
        resolve();
      };
    });
  }
}
