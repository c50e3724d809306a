import type { OdmoeError } from '../../../shared/base/errors/odmoe-error.js';
import type { ArrivalBound } from '../../../shared/transport/arrival-bound.js';
import type { PeerStream } from '../../../shared/transport/peer-stream.js';

/** One side of a stream without a network: it remembers the sent messages, and the test gives it the received ones. */
export class MemoryStream<Out, In> implements PeerStream<Out, In> {
  readonly sent: Out[] = [];
  readonly certifiedPeer = null;
  backlogBytes = 0;
  sentBytes = 0;
  receivedBytes = 0;
  roundTripMs = 0;
  closedWith: OdmoeError | null | undefined = undefined;
  takesTensors = false;
  arrivals: ArrivalBound | null = null;
  private messageHandler: ((message: In) => void) | null = null;
  private closeHandler: ((error: OdmoeError | null) => void) | null = null;
  private readonly early: In[] = [];

  takeTensors(): void {
    this.takesTensors = true;
  }

  boundArrivals(bound: ArrivalBound): void {
    this.arrivals = bound;
  }

  send(message: Out): void {
    if (this.closedWith === undefined) this.sent.push(message);
  }

  onMessage(handler: (message: In) => void): void {
    this.messageHandler = handler;
    for (const message of this.early.splice(0)) handler(message);
  }

  onClose(handler: (error: OdmoeError | null) => void): void {
    this.closeHandler = handler;
  }

  close(error?: OdmoeError): void {
    if (this.closedWith !== undefined) return;
    this.closedWith = error ?? null;
    this.closeHandler?.(this.closedWith);
  }

  /** Gives the stream a message from the other side. */
  arrive(message: In): void {
    if (this.messageHandler === null) this.early.push(message);
    else this.messageHandler(message);
  }
}
