import { OdmoeError, toOdmoeError } from '../errors/index.js';
import type { MessageCodec } from './codecs.js';
import { HeldMessages } from './held-messages.js';
import { MESSAGE_SIZE_LIMIT_BYTES, STREAM_BACKLOG_LIMIT_BYTES } from './limits.js';
import { requireUnstamped, stamped, unstamped, type NetworkTransit, type PeerMessage } from './network-transit.js';

/** One side of a bidirectional stream, server or client. */
export interface PeerStream<Out, In> {
  /** Never throws; after the stream's end it does nothing. Over STREAM_BACKLOG_LIMIT_BYTES unsent the stream is closed. */
  send(message: Out): void;
  /** Bytes given to send() that have not left for the network yet. */
  readonly backlogBytes: number;
  /** Messages wait until a handler is set. What the handler throws closes the stream. */
  onMessage(handler: (message: In) => void): void;
  /** Called exactly once, whichever side or fault ends the stream; null: an orderly end. Also when set after the end. */
  onClose(handler: (error: OdmoeError | null) => void): void;
  /** Without error: what was sent still goes out, then the stream ends. With one: the peer is told its code and message. */
  close(error?: OdmoeError): void;
}

/** What PeerStream uses of the streams that grpc-js gives the two sides. */
export interface MessageDuplex {
  write(bytes: Buffer, written: () => void): unknown;
  on(event: 'data', handler: (bytes: Buffer) => void): unknown;
  readonly readableEnded: boolean;
}

/** What differs between the two sides of a gRPC stream. */
export interface StreamEnding {
  /** Ends our side in order; what was written goes out first. */
  finish(): void;
  /** Ends the stream at once, telling the peer why where the side can. */
  fail(error: OdmoeError): void;
}

/**
 * PeerStream over the Duplex that grpc-js gives either side, carrying raw messages as Buffers. Encoding is done here so that
 * the size of what waits is known, decoding so that garbage ends one stream and nothing else. With a transit, messages take the time
 * of an emulated network.
 */
export class GrpcPeerStream<Out extends PeerMessage, In extends PeerMessage> implements PeerStream<Out, In> {
  private unsentBytes = 0;
  private closed: { error: OdmoeError | null } | null = null;
  private messageHandler: ((message: In) => void) | null = null;
  private closeHandler: ((error: OdmoeError | null) => void) | null = null;
  private readonly held: HeldMessages<In> | null;
  /** The stream is over, but for messages that are held. */
  private over = false;

  constructor(
    private readonly call: MessageDuplex,
    private readonly outgoing: MessageCodec<Out>,
    private readonly incoming: MessageCodec<In>,
    private readonly ending: StreamEnding,
    private readonly transit: NetworkTransit | null,
  ) {
    this.held =
      transit === null
        ? null
        : new HeldMessages(
            transit,
            (message) => {
              this.handle(message);
            },
            (error) => {
              this.close(error);
            },
          );
  }

  get backlogBytes(): number {
    return this.unsentBytes;
  }

  send(message: Out): void {
    if (this.closed !== null || this.over) return;
    let bytes: Buffer;
    try {
      bytes = this.outgoing.encode(message);
      if (this.transit !== null) bytes = stamped(bytes, this.transit.sent(message));
    } catch (thrown) {
      this.close(toOdmoeError(thrown));
      return;
    }
    const fault = this.sendFault(bytes.length);
    if (fault !== null) {
      this.close(fault);
      return;
    }
    this.unsentBytes += bytes.length;
    this.call.write(bytes, () => {
      this.unsentBytes -= bytes.length;
    });
  }

  onMessage(handler: (message: In) => void): void {
    const first = this.messageHandler === null;
    this.messageHandler = handler;
    if (first) {
      this.call.on('data', (bytes: Buffer) => {
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

  close(error?: OdmoeError): void {
    if (this.closed !== null) return;
    if (error === undefined) this.ending.finish();
    else this.ending.fail(error);
    this.settle(error ?? null);
  }

  /** Reports an end that came from the peer or the network. What is held is delivered first. */
  ended(error: OdmoeError | null): void {
    this.over = true;
    this.afterHeld(() => {
      this.settle(error);
    });
  }

  /** The peer sends nothing more. What is held is delivered, then our side is ended in order, too. */
  endedByPeer(): void {
    this.afterHeld(() => {
      this.close();
    });
  }

  private afterHeld(then: () => void): void {
    if (this.held === null) then();
    else this.held.onceEmpty(then);
  }

  private settle(error: OdmoeError | null): void {
    if (this.closed !== null) return;
    this.closed = { error };
    this.held?.drop();
    this.notifyClosed(error);
  }

  /** Whether messages that have arrived still wait to be handled. */
  get delivering(): boolean {
    return this.closed === null && this.messageHandler !== null && !this.call.readableEnded;
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

  private deliver(bytes: Buffer): void {
    if (this.closed !== null) return;
    const { transit, held } = this;
    if (transit === null || held === null) {
      this.handle(bytes);
      return;
    }
    try {
      const nowMs = transit.now();
      const { sentMs, bytes: own } = unstamped(bytes, nowMs);
      const message = this.incoming.decode(own);
      held.add(message, bytes.length, transit.received(message, sentMs));
    } catch (thrown) {
      this.close(toOdmoeError(thrown));
    }
  }

  private decode(bytes: Buffer): In {
    requireUnstamped(bytes);
    return this.incoming.decode(bytes);
  }

  /** What the handler or the decoder throws closes the stream. */
  private handle(received: In | Buffer): void {
    if (this.closed !== null) return;
    try {
      const message = Buffer.isBuffer(received) ? this.decode(received) : received;
      const result: unknown = this.messageHandler?.(message);
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
