import type { ProfiledNetwork } from '../../shared/emulation/device-profile.js';
import { EmulatedNetworkCard } from '../../shared/emulation/network-card.js';
import type { TimingRecorder } from './timing-recorder.js';
import type { VirtualClock } from './virtual-clock.js';

/** What a message carries. */
export interface MessageSubject {
  position: number;
  layer: number;
  expert: number;
}

/** The network between simulated nodes: each has one card, as the emulated daemons have. */
export class SimulatedNetwork {
  readonly #cards = new Map<string, EmulatedNetworkCard>();

  constructor(
    private readonly network: ProfiledNetwork,
    private readonly clock: VirtualClock,
    private readonly recorder: TimingRecorder,
  ) {}

  /** `subject`: of what a diagram shows; null: nothing. */
  send(
    from: string,
    to: string,
    payloadBytes: number,
    deliver: () => void,
    subject: MessageSubject | null = null,
  ): void {
    const { nowMs } = this.clock;
    const bytes = payloadBytes + this.network.messageOverheadBytes;
    const sentMs = this.#card(from).sendEnd(bytes, nowMs);
    const receivedMs = this.#card(to).receiveEnd(bytes, sentMs, nowMs);
    this.recorder.messages += 1;
    this.recorder.sentBytes += bytes;
    if (subject !== null) {
      const times = { beginMs: nowMs, endMs: receivedMs, cancelled: false };
      this.recorder.span({ kind: 'transfer', lane: to, ...subject, ...times });
    }
    this.clock.at(receivedMs, deliver);
  }

  #card(node: string): EmulatedNetworkCard {
    let card = this.#cards.get(node);
    if (card === undefined) this.#cards.set(node, (card = new EmulatedNetworkCard(this.network)));
    return card;
  }
}
