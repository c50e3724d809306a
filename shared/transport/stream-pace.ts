import type { MessageCodec } from '../wire/codecs.js';
import type { ShadowReply, ShadowRequest, WorkerReply, WorkerRequest } from '../wire/messages.js';
import type { MessageDuplex } from './peer-stream.js';

/** Messages on the streams between daemons. */
export type PeerMessage = WorkerRequest | WorkerReply | ShadowRequest | ShadowReply;

/**
 * An emulated network that is slower than the real one, which carries the bytes (engine/emulation). A stream has a pace only if its daemon is
 * emulated. Both ends must then have one.
 */
export interface StreamPace {
  /** Marks each message with the time at which the emulated network will have accepted it. */
  codec<Message extends PeerMessage>(inner: MessageCodec<Message>): MessageCodec<Message>;
  /** Holds each message until the time at which the emulated network delivers it. */
  duplex(inner: MessageDuplex): PacedDuplex;
}

export interface PacedDuplex extends MessageDuplex {
  /** Calls back once, when no more messages are held; at once if none is held now. */
  afterDelivery(then: () => void): void;
}

/** The carrier of a stream's bytes, with the stream's pace if it has one. */
export function carrierOf(inner: MessageDuplex, pace: StreamPace | null): PacedDuplex {
  if (pace !== null) return pace.duplex(inner);
  return {
    write: (bytes, written) => inner.write(bytes, written),
    on: (event, handler) => inner.on(event, handler),
    get readableEnded() {
      return inner.readableEnded;
    },
    afterDelivery: (then) => {
      then();
    },
  };
}
