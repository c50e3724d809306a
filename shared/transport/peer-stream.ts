import { OdmoeError, toOdmoeError } from '../base/errors/odmoe-error.js';
import type { MessageCodec } from '../wire/codecs.js';
import {
  FIRST_MESSAGE_LIMIT_BYTES,
  MESSAGE_SIZE_LIMIT_BYTES,
  PLAIN_RECEIVE_LIMIT_BYTES,
  STREAM_BACKLOG_LIMIT_BYTES,
} from '../wire/limits.js';
import type { CertifiedCaller } from './trust/peer-role.js';
import type { ArrivalBound } from './arrival-bound.js';

/** One side of a bidirectional stream, server or client. */
export interface PeerStream<Out, In> {
  /** The peer that the certificate of the other end names; null: the cluster has no authority, or nothing has arrived from there yet. */
  readonly certifiedPeer: CertifiedCaller | null;
  /** Never throws; does nothing after the stream's end. The stream closes if more than STREAM_BACKLOG_LIMIT_BYTES are unsent. */
  send(message: Out): void;
  /** Bytes given to send() that have not left for the network yet. */
  readonly backlogBytes: number;
  /** Bytes of all messages so far, without the framing around them. */
  readonly sentBytes: number;
  readonly receivedBytes: number;
  /** Round trip of the keepalive, as a mean in which the latest values count most; 0: no question has been answered. */
  readonly roundTripMs: number;
  /** Messages wait until a handler is set. An error that the handler throws closes the stream. */
  onMessage(handler: (message: In) => void): void;
  /** Called exactly once, whichever side or fault ends the stream; null: an orderly end. A handler that is set after the end is called, too. */
  onClose(handler: (error: OdmoeError | null) => void): void;
  /**
   * Call this once the peer is known as a sender of tensors, at the opening side after the first message has come: from then on messages of up
   * to MESSAGE_SIZE_LIMIT_BYTES are received. Before this call a message over PLAIN_RECEIVE_LIMIT_BYTES ends the stream while it arrives, and a
   * first message over FIRST_MESSAGE_LIMIT_BYTES before it is decoded, so that strangers cannot fill the memory.
   */
  takeTensors(): void;
  /** From now on the stream closes, before it decodes the message, when more arrives than this bound allows. A later bound takes the place of an earlier. */
  boundArrivals(bound: ArrivalBound): void;
  /** Without an error: messages already sent still go out, then the stream ends. With an error: the peer gets its code and message. */
  close(error?: OdmoeError): void;
}

/** Carries the bytes of messages between two nodes, in order: a stream of grpc-js, or one in memory. */
export interface MessageDuplex {
  /** `written` is called when the bytes have left for the network. */
  write(bytes: Buffer, written: () => void): unknown;
  /** Bytes wait until a handler is set. */
  on(event: 'data', handler: (bytes: Buffer) => void): unknown;
  /** True if all bytes that arrived have been handed over and no more will come. */
  readonly readableEnded: boolean;
}

/** The parts in which the two sides of a stream differ. */
export interface StreamSide {
  /** The peer that the certificate of the other end names; null: none is known. */
  certifiedPeer(): CertifiedCaller | null;
  /** Makes the carrier of the bytes accept larger messages, too. */
  takeTensors(): void;
  /** Ends our side in order; bytes already written go out first. */
  finish(): void;
  /** Ends the stream at once. The peer gets the reason if this side can send it. */
  fail(error: OdmoeError): void;
}

/** Weight of the latest round trip in the mean. */
const ROUND_TRIP_WEIGHT = 1 / 4;

/**
 * A PeerStream over a carrier of bytes. It encodes messages here so that the size of the unsent ones is known. It decodes here so that invalid
 * bytes end only this stream.
 */
export class MessagePeerStream<Out, In> implements PeerStream<Out, In> {
  sentBytes = 0;
  receivedBytes = 0;
  roundTripMs = 0;
  private receiveLimitBytes = FIRST_MESSAGE_LIMIT_BYTES;
  private unsentBytes = 0;
  private arrivals: ArrivalBound | null = null;
  private closed: { error: OdmoeError | null } | null = null;
  private messageHandler: ((message: In) => void) | null = null;
  private closeHandler: ((error: OdmoeError | null) => void) | null = null;

  constructor(
    private readonly duplex: MessageDuplex,
    private readonly outgoing: MessageCodec<Out>,
    private readonly incoming: MessageCodec<In>,
    private readonly side: StreamSide,
  ) {}

  get certifiedPeer(): CertifiedCaller | null {
    return this.side.certifiedPeer();
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

  /** Records that the peer has answered a question of the keepalive. */
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

  boundArrivals(bound: ArrivalBound): void {
    this.arrivals = bound;
  }

  /** Ends our side at once with this error. Messages already sent still go out, as a peer may read its reason there. */
  finish(error: OdmoeError): void {
    if (this.closed !== null) return;
    this.side.finish();
    this.ended(error);
  }

  close(error?: OdmoeError): void {
    if (this.closed !== null) return;
    if (error === undefined) this.side.finish();
    else this.side.fail(error);
    this.ended(error ?? null);
  }

  /** Reports an end that came from the peer or the network. Call it after everything that arrived before has been delivered. */
  ended(error: OdmoeError | null): void {
    if (this.closed !== null) return;
    this.closed = { error };
    this.notifyClosed(error);
  }

  /** The peer has ended its side: our side ends in order, too. */
  endedByPeer(): void {
    this.close();
  }

  /** True if messages may have arrived that are not handled yet. */
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

  /** An error of the decoder or the handler closes the stream. */
  private deliver(bytes: Buffer): void {
    if (this.closed !== null) return;
    this.receivedBytes += bytes.length;
    const flood = this.arrivals?.arrived(bytes.length) ?? null;
    if (flood !== null) {
      this.close(flood);
      return;
    }
    if (bytes.length > this.receiveLimitBytes) {
      const text = `a message of ${bytes.length} bytes came; ${this.receiveLimitBytes} are taken of this peer`;
      this.close(new OdmoeError('PROTOCOL_VIOLATION', text));
      return;
    }
    this.receiveLimitBytes = Math.max(this.receiveLimitBytes, PLAIN_RECEIVE_LIMIT_BYTES);
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
