import { OdmoeError } from '../base/errors/odmoe-error.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { TokenBuckets } from '../base/runtime/token-buckets.js';
import {
  ARRIVALS_OF_PLAIN_PEER,
  GREETED_HOSTS_LIMIT,
  GREETINGS_OF_HOST,
  SERVED_STREAMS_LIMIT,
  SERVED_STREAMS_OF_HOST_LIMIT,
} from '../wire/limits.js';
import { ArrivalBound } from './arrival-bound.js';
import type { PeerContext } from './peer-context.js';
import type { PeerStream } from './peer-stream.js';

/** Bounds the streams that peers open to a worker or a shadow: how many, how often, and what each brings. */
export class StreamAdmission {
  private readonly openOfHost = new Map<string, number>();
  private open = 0;
  private readonly greetings: TokenBuckets;

  constructor(private readonly runtime: Pick<Runtime, 'nowMs'>) {
    this.greetings = new TokenBuckets(GREETINGS_OF_HOST, GREETED_HOSTS_LIMIT, () => runtime.nowMs());
  }

  /** Returns a function to call once, when the stream has ended. null: the stream was closed, with the reason in words. */
  admit(
    stream: Pick<PeerStream<never, unknown>, 'close' | 'boundArrivals'>,
    { host }: PeerContext,
  ): (() => void) | null {
    const refusal = this.refusal(host);
    if (refusal !== null) {
      stream.close(refusal);
      return null;
    }
    this.count(host, 1);
    stream.boundArrivals(new ArrivalBound(ARRIVALS_OF_PLAIN_PEER, this.runtime));
    return () => this.count(host, -1);
  }

  private refusal(host: string): OdmoeError | null {
    if (!this.greetings.take(host)) {
      const { burst, perSecond } = GREETINGS_OF_HOST;
      return new OdmoeError(
        'QUEUE_FULL',
        `${host} opens streams too often: ${burst} at once and ${perSecond} a second are taken; try again later`,
      );
    }
    const ofHost = this.openOfHost.get(host) ?? 0;
    if (ofHost < SERVED_STREAMS_OF_HOST_LIMIT && this.open < SERVED_STREAMS_LIMIT) return null;
    return new OdmoeError(
      'QUEUE_FULL',
      `${this.open} streams are open here, ${ofHost} of them from ${host}: at most ${SERVED_STREAMS_LIMIT}, and ` +
        `${SERVED_STREAMS_OF_HOST_LIMIT} from one host, are served at a time`,
    );
  }

  private count(host: string, more: 1 | -1): void {
    this.open += more;
    const ofHost = (this.openOfHost.get(host) ?? 0) + more;
    if (ofHost === 0) this.openOfHost.delete(host);
    else this.openOfHost.set(host, ofHost);
  }
}
