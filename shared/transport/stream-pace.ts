import type { MessageCodec } from '../wire/codecs.js';
import type { ShadowReply, ShadowRequest, WorkerReply, WorkerRequest } from '../wire/messages.js';
import type { MessageDuplex } from './peer-stream.js';

/** What goes over the streams between daemons. */
export type PeerMessage = WorkerRequest | WorkerReply | ShadowRequest | ShadowReply;

/**
 * A network that takes longer than the one that really carries the bytes (engine/emulation). A stream has none unless its daemon is
 * emulated; both ends must have one.
 */
export interface StreamPace {
  /** Marks each message with the time at which the emulated network will have taken it. */
  codec<Message extends PeerMessage>(inner: MessageCodec<Message>): MessageCodec<Message>;
  /** Holds each message until the emulated network has brought it. */
  duplex(inner: MessageDuplex): PacedDuplex;
}

export interface PacedDuplex extends MessageDuplex {
  /** Calls back once, when no message is held any more: at once if that is so now. */
  afterDelivery(then: () => void): void;
}

/** What carries a stream's bytes, at its pace where it has one. */
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
