import { OdmoeError } from '../base/errors/odmoe-error.js';
import type { Runtime } from '../base/runtime/runtime.js';
import type { MessageCodec, RpcMethod } from '../wire/codecs.js';
import type { PeerMessage } from './stream-pace.js';
import { type MessageDuplex, MessagePeerStream, type PeerStream } from './peer-stream.js';

/** Called for each message when it is sent and when it arrives, in either direction. */
export type MessageWatch = (way: 'sent' | 'arrived', to: 'opener' | 'server', message: PeerMessage) => void;

/** Both ends of a stream within one process. */
export interface StreamPair<Request, Reply> {
  readonly opened: PeerStream<Request, Reply>;
  readonly served: PeerStream<Reply, Request>;
}

export interface InProcessOptions {
  readonly runtime: Pick<Runtime, 'nextTurn'>;
  readonly watch: MessageWatch | null;
  readonly onOver: () => void;
}

/** The bytes of a message, or the end of a side. */
type Item =
  | { readonly kind: 'message'; readonly bytes: Buffer; readonly written: () => void }
  | { readonly kind: 'end'; readonly then: () => void };

/**
 * One direction of a stream within a process: bytes that are written arrive in the next turn of the event loop, in order. Bytes that wait for a
 * listener do not count as written yet, so the stream's bound (STREAM_BACKLOG_LIMIT_BYTES) holds here, too.
 */
class Pipe {
  private readonly items: Item[] = [];
  private handler: ((bytes: Buffer) => void) | null = null;
  private isDue = false;

  constructor(private readonly runtime: Pick<Runtime, 'nextTurn'>) {}

  push(item: Item): void {
    this.items.push(item);
    this.deliverSoon();
  }

  listen(handler: (bytes: Buffer) => void): void {
    this.handler = handler;
    this.deliverSoon();
  }

  private deliverSoon(): void {
    if (this.isDue || this.items.length === 0) return;
    this.isDue = true;
    this.runtime.nextTurn(() => {
      this.isDue = false;
      this.deliver();
    });
  }

  private deliver(): void {
    // Items that are written during the delivery arrive in a later turn.
    const due = this.items.splice(0);
    const isEnding = due.some(({ kind }) => kind === 'end');
    if (this.handler === null && !isEnding) {
      this.items.unshift(...due);
      return;
    }
    for (const item of due) {
      if (item.kind === 'end') item.then();
      else {
        item.written();
        this.handler?.(item.bytes);
      }
    }
  }
}

/** One side of the stream: it writes to one pipe and reads from the other. */
function duplexOf(outgoing: Pipe, incoming: Pipe): MessageDuplex {
  return {
    readableEnded: false,
    write: (bytes, written) => outgoing.push({ kind: 'message', bytes, written }),
    on: (_event, handler) => incoming.listen(handler),
  };
}

/**
 * A stream between two parts of one process: it has the codecs, checks and bounds of a stream between machines, but no sockets. `watch`: sees
 * the messages; null: nothing does. `onOver`: called when the served end has closed.
 */
export function openInProcess<Request extends PeerMessage, Reply extends PeerMessage>(
  { request, reply }: Pick<RpcMethod<Request, Reply>, 'request' | 'reply'>,
  { runtime, watch, onOver }: InProcessOptions,
): StreamPair<Request, Reply> {
  const [toServer, toOpener] = [new Pipe(runtime), new Pipe(runtime)];
  const requests = watchedCodec(request, 'server', watch);
  const replies = watchedCodec(reply, 'opener', watch);
  const gone = (): void => {
    onOver();
    served.ended(new OdmoeError('CANCELLED', 'the peer in this process went away'));
  };
  const opened = new MessagePeerStream<Request, Reply>(duplexOf(toServer, toOpener), requests, replies, {
    certifiedPeer: () => null,
    takeTensors: () => undefined,
    finish: () => toServer.push({ kind: 'end', then: () => served.endedByPeer() }),
    fail: () => toServer.push({ kind: 'end', then: gone }),
  });
  const served: MessagePeerStream<Reply, Request> = new MessagePeerStream<Reply, Request>(
    duplexOf(toOpener, toServer),
    replies,
    requests,
    {
      certifiedPeer: () => null,
      takeTensors: () => undefined,
      finish: () => {
        onOver();
        toOpener.push({ kind: 'end', then: () => opened.ended(null) });
      },
      fail: (error) => {
        onOver();
        toOpener.push({ kind: 'end', then: () => opened.ended(error) });
      },
    },
  );
  return { opened, served };
}

function watchedCodec<Message extends PeerMessage>(
  codec: MessageCodec<Message>,
  to: 'opener' | 'server',
  watch: MessageWatch | null,
): MessageCodec<Message> {
  if (watch === null) return codec;
  return {
    encode: (message) => {
      watch('sent', to, message);
      return codec.encode(message);
    },
    decode: (bytes) => {
      const message = codec.decode(bytes);
      watch('arrived', to, message);
      return message;
    },
  };
}
