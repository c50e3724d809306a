import { OdmoeError, toOdmoeError } from '../base/errors/odmoe-error.js';
import type { MessageCodec } from '../wire/codecs.js';
import { MESSAGE_SIZE_LIMIT_BYTES, STREAM_BACKLOG_LIMIT_BYTES } from '../wire/limits.js';

/** One side of a bidirectional stream, server or client. */
export interface PeerStream<Out, In> {
  /** Never throws; after the stream's end it does nothing. Over STREAM_BACKLOG_LIMIT_BYTES unsent the stream is closed. */
  send(message: Out): void;
  /** Bytes given to send() that have not left for the network yet. */
  readonly backlogBytes: number;
  /** Of messages so far, without what carries them. */
  readonly sentBytes: number;
  readonly receivedBytes: number;
  /** How long the peer takes to answer the keepalive, on a mean in which the latest weighs most; 0: it has answered none. */
  readonly roundTripMs: number;
  /** Messages wait until a handler is set. What the handler throws closes the stream. */
  onMessage(handler: (message: In) => void): void;
  /** Called exactly once, whichever side or fault ends the stream; null: an orderly end. Also when set after the end. */
  onClose(handler: (error: OdmoeError | null) => void): void;
  /**
   * The peer that has opened the stream is known as one that sends tensors: messages of up to MESSAGE_SIZE_LIMIT_BYTES are taken from now on.
   * Before this call a message over PLAIN_RECEIVE_LIMIT_BYTES ends the stream while it comes, so that strangers fill no memory.
   */
  takeTensors(): void;
  /** Without error: what was sent still goes out, then the stream ends. With one: the peer is told its code and message. */
  close(error?: OdmoeError): void;
}

/** What carries the bytes of messages between two nodes, in order: a stream of grpc-js, or one in memory. */
export interface MessageDuplex {
  /** `written` is called when the bytes have left for the network. */
  write(bytes: Buffer, written: () => void): unknown;
  /** Bytes wait until somebody listens. */
  on(event: 'data', handler: (bytes: Buffer) => void): unknown;
  /** Whether all that came has been handed over, and nothing more will come. */
  readonly readableEnded: boolean;
}

/** What differs between the two sides of a stream. */
export interface StreamSide {
  /** Largest message that comes, as long as takeTensors was not called. */
  readonly receiveLimitBytes: number;
  /** Tells the carrier of the bytes to let larger messages through, too. */
  takeTensors(): void;
  /** Ends our side in order; what was written goes out first. */
  finish(): void;
  /** Ends the stream at once, telling the peer why where the side can. */
  fail(error: OdmoeError): void;
}

/** Of the latest round trip in their mean. */
const ROUND_TRIP_WEIGHT = 1 / 4;

/**
 * A PeerStream over what carries its bytes. Encoding is done here so that the size of what waits is known, decoding so that garbage ends
 * one stream and nothing else.
 */
export class MessagePeerStream<Out, In> implements PeerStream<Out, In> {
  sentBytes = 0;
  receivedBytes = 0;
  roundTripMs = 0;
  private receiveLimitBytes: number;
  private unsentBytes = 0;
  private closed: { error: OdmoeError | null } | null = null;
  private messageHandler: ((message: In) => void) | null = null;
  private closeHandler: ((error: OdmoeError | null) => void) | null = null;

  constructor(
    private readonly duplex: MessageDuplex,
    private readonly outgoing: MessageCodec<Out>,
    private readonly incoming: MessageCodec<In>,
    private readonly side: StreamSide,
  ) {
    this.receiveLimitBytes = side.receiveLimitBytes;
  }

  get backlogBytes(): number {
    return this.unsentBytes;
  }

  send(message: Out): void {
    if (this.closed !== null) return;
    let bytes: Buffer;
    try {
      bytes = this.outgoing.encode(message);
    } catch (thrown) {
      this.close(toOdmoeError(thrown));
      return;
    }
    const fault = this.sendFault(bytes.length);
    if (fault !== null) {
      this.close(fault);
      return;
    }
    this.sentBytes += bytes.length;
    this.unsentBytes += bytes.length;
    this.duplex.write(bytes, () => {
      this.unsentBytes -= bytes.length;
    });
  }

  /** The peer has answered a question of the keepalive. */
  answeredIn(roundTripMs: number): void {
    const isFirst = this.roundTripMs === 0;
    this.roundTripMs += (roundTripMs - this.roundTripMs) * (isFirst ? 1 : ROUND_TRIP_WEIGHT);
  }

  onMessage(handler: (message: In) => void): void {
    const first = this.messageHandler === null;
    this.messageHandler = handler;
    if (first) {
      this.duplex.on('data', (bytes: Buffer) => {
        this.deliver(bytes);
      });
    }
  }

  onClose(handler: (error: OdmoeError | null) => void): void {
    this.closeHandler = handler;
    const closed = this.closed;
    if (closed !== null) {
      queueMicrotask(() => {
        this.notifyClosed(closed.error);
      });
    }
  }

  takeTensors(): void {
    if (this.closed !== null) return;
    this.receiveLimitBytes = MESSAGE_SIZE_LIMIT_BYTES;
    this.side.takeTensors();
  }

  close(error?: OdmoeError): void {
    if (this.closed !== null) return;
    if (error === undefined) this.side.finish();
    else this.side.fail(error);
    this.ended(error ?? null);
  }

  /** Reports an end that came from the peer or the network, when all that came before it has been delivered. */
  ended(error: OdmoeError | null): void {
    if (this.closed !== null) return;
    this.closed = { error };
    this.notifyClosed(error);
  }

  /** The peer sends nothing more: our side is ended in order, too. */
  endedByPeer(): void {
    this.close();
  }

  /** Whether messages that have arrived still wait to be handled. */
  get delivering(): boolean {
    return this.closed === null && this.messageHandler !== null && !this.duplex.readableEnded;
  }

  private notifyClosed(error: OdmoeError | null): void {
    const handler = this.closeHandler;
    this.closeHandler = null;
    handler?.(error);
  }

  private sendFault(bytes: number): OdmoeError | null {
    if (bytes > MESSAGE_SIZE_LIMIT_BYTES) {
      return new OdmoeError(
        'INTERNAL',
        `a message of ${bytes} bytes exceeds the limit of ${MESSAGE_SIZE_LIMIT_BYTES}: cut its tensor into several`,
      );
    }
    if (this.unsentBytes + bytes > STREAM_BACKLOG_LIMIT_BYTES) {
      return new OdmoeError(
        'TIMEOUT',
        `a peer does not take what it is sent: ${this.unsentBytes} bytes wait, ${STREAM_BACKLOG_LIMIT_BYTES} are allowed`,
      );
    }
    return null;
  }

  /** What the decoder or the handler throws closes the stream. */
  private deliver(bytes: Buffer): void {
    if (this.closed !== null) return;
    this.receivedBytes += bytes.length;
    if (bytes.length > this.receiveLimitBytes) {
      const text = `a message of ${bytes.length} bytes came; ${this.receiveLimitBytes} are taken of this peer`;
      this.close(new OdmoeError('PROTOCOL_VIOLATION', text));
      return;
    }
    try {
      const result: unknown = this.messageHandler?.(this.incoming.decode(bytes));
      if (result instanceof Promise) {
        result.catch((thrown: unknown) => {
          this.close(toOdmoeError(thrown));
        });
      }
    } catch (thrown) {
      this.close(toOdmoeError(thrown));
    }
  }
}
