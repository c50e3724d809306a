import { EmulatedNetworkCard } from '../../engine/emulation/network-card.js';
import { messageBytes, type MessageProfile } from '../../engine/emulation/message-bytes.js';
import type { PeerMessage } from '../../shared/transport/stream-pace.js';
import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';

/** Computes the time of a message from one host to another. It is called in the order of sending. */
export interface LinkModel {
  /** Time of arrival on an undisturbed link. `message`: a message of a stream between daemons; null: a call. */
  arrivalMs(from: string, to: string, message: PeerMessage | null, bytes: number, nowMs: number): number;
}

/** Links with latency, bandwidth and random jitter. */
export class DrawnLinks implements LinkModel {
  constructor(
    private readonly random: SeededRandom,
    private readonly link: { latencyMs: number; jitterMs: number; bytesPerMs: number },
  ) {}

  arrivalMs(_from: string, _to: string, _message: PeerMessage | null, bytes: number, nowMs: number): number {
    const { latencyMs, jitterMs, bytesPerMs } = this.link;
    return nowMs + latencyMs + this.random.fraction() * jitterMs + bytes / bytesPerMs;
  }
}

/** The network of a device profile, with one card per host. Calls, which a profile does not describe, take half a round trip. */
export class ProfiledLinks implements LinkModel {
  private readonly cards = new Map<string, EmulatedNetworkCard>();

  constructor(private readonly profile: MessageProfile) {}

  arrivalMs(from: string, to: string, message: PeerMessage | null, _bytes: number, nowMs: number): number {
    const { network } = this.profile;
    if (message === null) return nowMs + network.roundTripMs / 2;
    const bytes = messageBytes(message, this.profile);
    return this.card(to).receiveEnd(bytes, this.card(from).sendEnd(bytes, nowMs), nowMs);
  }

  private card(host: string): EmulatedNetworkCard {
    let card = this.cards.get(host);
    if (card === undefined) this.cards.set(host, (card = new EmulatedNetworkCard(this.profile.network)));
    return card;
  }
}
