import { OdmoeError } from '../base/errors/odmoe-error.js';
import { type Rate, TokenBucket } from '../base/runtime/token-buckets.js';
import type { Runtime } from '../base/runtime/runtime.js';

/** Messages, and bytes of messages, that a peer may send. */
export interface ArrivalRates {
  readonly messages: Rate;
  readonly bytes: Rate;
}

/** Bounds what arrives over one stream, so that a peer that sends without end does not keep this process from its work. */
export class ArrivalBound {
  private readonly messages: TokenBucket;
  private readonly bytes: TokenBucket;
  /** The stream brought more than it may. */
  isBroken = false;

  constructor(
    private readonly rates: ArrivalRates,
    runtime: Pick<Runtime, 'nowMs'>,
  ) {
    const now = (): number => runtime.nowMs();
    this.messages = new TokenBucket(rates.messages, now);
    this.bytes = new TokenBucket(rates.bytes, now);
  }

  /** Counts a message. Returns the reason to close the stream; null: there is none. */
  arrived(bytes: number): OdmoeError | null {
    if (!this.messages.take()) return this.broken('messages', this.rates.messages);
    if (!this.bytes.take(bytes)) return this.broken('bytes', this.rates.bytes);
    return null;
  }

  private broken(what: string, { burst, perSecond }: Rate): OdmoeError {
    this.isBroken = true;
    return new OdmoeError(
      'PROTOCOL_VIOLATION',
      `more ${what} came over this stream than work needs: ${burst} at once and ${perSecond} a second are taken of this peer`,
    );
  }
}
