import type { ProfiledNetwork } from './device-profile.js';

/** Past times are remembered this long, for messages that are reported late. */
const HISTORY_MS = 100;
const MS_PER_S = 1000;

/**
 * The network card of one node: times in, times out (ms of one clock). A card carries one message at a time and sends messages in the given
 * order. Cut-through: the receiver takes a message's bits half a round trip after the sender's card has sent them. So a message that meets two
 * free cards takes bytes / bytesPerS + half a round trip. Half duplex: sent and received messages share the card.
 */
export class EmulatedNetworkCard {
  private readonly sending = new BusyTimes();
  private readonly receiving: BusyTimes;
  private lastSentMs = -Infinity;

  constructor(private readonly network: ProfiledNetwork) {
    this.receiving = network.duplex === 'half' ? this.sending : new BusyTimes();
  }

  /** Time when the card has sent a message that it gets now. */
  sendEnd(bytes: number, nowMs: number): number {
    this.forget(nowMs);
    const takesMs = this.takesMs(bytes);
    const startMs = this.sending.take(Math.max(nowMs, this.lastSentMs), takesMs);
    this.lastSentMs = startMs + takesMs;
    return this.lastSentMs;
  }

  /** Time when the card has received a message that the sender's card has sent at sentEndMs and that is reported now. */
  receiveEnd(bytes: number, sentEndMs: number, nowMs: number): number {
    this.forget(nowMs);
    const takesMs = this.takesMs(bytes);
    const firstBitMs = sentEndMs - takesMs + this.network.roundTripMs / 2;
    return this.receiving.take(firstBitMs, takesMs) + takesMs;
  }

  private takesMs(bytes: number): number {
    return (bytes / this.network.bytesPerS) * MS_PER_S;
  }

  private forget(nowMs: number): void {
    this.sending.forgetBefore(nowMs - HISTORY_MS);
    this.receiving.forgetBefore(nowMs - HISTORY_MS);
  }
}

interface Span {
  startMs: number;
  endMs: number;
}

/** Time spans in which the card is busy, in order and without overlap; as many as messages are under way. */
class BusyTimes {
  private spans: Span[] = [];

  /** Takes the first free span of that length that starts at or after fromMs; returns its start. */
  take(fromMs: number, lengthMs: number): number {
    let startMs = fromMs;
    let place = this.firstEndingAfter(fromMs);
    for (let span = this.spans[place]; span !== undefined; span = this.spans[++place]) {
      if (startMs + lengthMs <= span.startMs) break;
      startMs = Math.max(startMs, span.endMs);
    }
    if (lengthMs > 0) this.spans.splice(place, 0, { startMs, endMs: startMs + lengthMs });
    return startMs;
  }

  forgetBefore(ms: number): void {
    if ((this.spans[0]?.endMs ?? Infinity) <= ms) this.spans = this.spans.slice(this.firstEndingAfter(ms));
  }

  /** Binary search: spans are ordered by their ends. */
  private firstEndingAfter(ms: number): number {
    let [low, high] = [0, this.spans.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.spans[middle]?.endMs ?? Infinity) > ms) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}
