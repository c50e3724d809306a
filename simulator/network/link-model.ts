import { EmulatedNetworkCard } from '../../engine/emulation/network-card.js';
import { messageBytes, type MessageProfile } from '../../engine/emulation/message-bytes.js';
import type { PeerMessage } from '../../shared/transport/stream-pace.js';
import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';

/** How long what goes from one host to another is under way. Asked in the order of sending. */
export interface LinkModel {
  /** When it arrives, if nothing is in the way. `message`: of a stream between daemons; null: of a call. */
  arrivalMs(from: string, to: string, message: PeerMessage | null, bytes: number, nowMs: number): number;
}

/** Latency, bandwidth and chance. */
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

/** The network of a device profile: a card a host. Calls, which the profile says nothing of, take half a round trip. */
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
