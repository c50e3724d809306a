import { OdmoeError } from '../base/errors/odmoe-error.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { TokenBuckets } from '../base/runtime/token-buckets.js';
import {
  ARRIVALS_OF_PLAIN_PEER,
  GREETED_PEERS_LIMIT,
  GREETINGS_OF_PEER,
  SERVED_STREAMS_LIMIT,
  SERVED_STREAMS_OF_PEER_LIMIT,
} from '../wire/limits.js';
import { ArrivalBound } from './arrival-bound.js';
import { countedName, type PeerContext } from './peer-context.js';
import type { PeerStream } from './peer-stream.js';

/** Bounds the streams that peers open to a worker or a shadow: how many, how often, and what each brings. */
export class StreamAdmission {
  private readonly openOfPeer = new Map<string, number>();
  private open = 0;
  private readonly greetings: TokenBuckets;

  constructor(private readonly runtime: Pick<Runtime, 'nowMs'>) {
    this.greetings = new TokenBuckets(GREETINGS_OF_PEER, GREETED_PEERS_LIMIT, () => runtime.nowMs());
  }

  /** Returns a function to call once, when the stream has ended. null: the stream was closed, with the reason in words. */
  admit(stream: Pick<PeerStream<never, unknown>, 'close' | 'boundArrivals'>, peer: PeerContext): (() => void) | null {
    const name = countedName(peer);
    const refusal = this.refusal(name);
    if (refusal !== null) {
      stream.close(refusal);
      return null;
    }
    this.count(name, 1);
    stream.boundArrivals(new ArrivalBound(ARRIVALS_OF_PLAIN_PEER, this.runtime));
    return () => this.count(name, -1);
  }

  private refusal(name: string): OdmoeError | null {
    if (!this.greetings.take(name)) {
      const { burst, perSecond } = GREETINGS_OF_PEER;
      return new OdmoeError(
        'QUEUE_FULL',
        `${name} opens streams too often: ${burst} at once and ${perSecond} a second are taken; try again later`,
      );
    }
    const ofPeer = this.openOfPeer.get(name) ?? 0;
    if (ofPeer < SERVED_STREAMS_OF_PEER_LIMIT && this.open < SERVED_STREAMS_LIMIT) return null;
    return new OdmoeError(
      'QUEUE_FULL',
      `${this.open} streams are open here, ${ofPeer} of them from ${name}: at most ${SERVED_STREAMS_LIMIT}, and ` +
        `${SERVED_STREAMS_OF_PEER_LIMIT} from one peer, are served at a time`,
    );
  }

  private count(name: string, more: 1 | -1): void {
    this.open += more;
    const ofPeer = (this.openOfPeer.get(name) ?? 0) + more;
    if (ofPeer === 0) this.openOfPeer.delete(name);
    else this.openOfPeer.set(name, ofPeer);
  }
}
