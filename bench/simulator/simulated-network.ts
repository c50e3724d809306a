import type { ProfiledNetwork } from '../../shared/emulation/device-profile.js';
import type { TimingRecorder } from './timing-recorder.js';
import type { VirtualClock } from './virtual-clock.js';

/** What a message carries; null: nothing that a diagram shows. */
export interface MessageSubject {
  position: number;
  layer: number;
  expert: number;
}

/** Until when a node's network card is busy. Of a half-duplex card both are the same. */
interface CardTimes {
  sendFreeMs: number;
  receiveFreeMs: number;
}

/**
 * The network between simulated nodes. A message takes its time on the sender's card, travels half a round trip, and takes its
 * time on the receiver's card, which it leaves no earlier than it has arrived. Messages between two nodes keep their order.
 */
export class SimulatedNetwork {
  readonly #cards = new Map<string, CardTimes>();

  constructor(
    private readonly network: ProfiledNetwork,
    private readonly clock: VirtualClock,
    private readonly recorder: TimingRecorder,
  ) {}

  send(from: string, to: string, payloadBytes: number, deliver: () => void, subject: MessageSubject | null = null): void {
    const { nowMs } = this.clock;
    const bytes = payloadBytes + this.network.messageOverheadBytes;
    const cardMs = (bytes / this.network.bytesPerS) * 1000;
    const sentMs = Math.max(nowMs, this.#card(from).sendFreeMs) + cardMs;
    this.#occupy(from, 'sendFreeMs', sentMs);
    this.recorder.messages += 1;
    this.recorder.sentBytes += bytes;
    // The receiver's card is taken when the first byte comes, which is when the sender's has let it go but for the last.
    this.clock.at(sentMs + this.network.roundTripMs / 2 - cardMs, () => {
      const receivedMs = Math.max(this.clock.nowMs, this.#card(to).receiveFreeMs) + cardMs;
      this.#occupy(to, 'receiveFreeMs', receivedMs);
      if (subject !== null) {
        const times = { beginMs: nowMs, endMs: receivedMs, cancelled: false };
        this.recorder.span({ kind: 'transfer', lane: to, ...subject, ...times });
      }
      this.clock.at(receivedMs, deliver);
    });
  }

  #occupy(node: string, side: keyof CardTimes, untilMs: number): void {
    const card = this.#card(node);
    if (this.network.duplex === 'half') card.sendFreeMs = card.receiveFreeMs = untilMs;
    else card[side] = untilMs;
  }

  #card(node: string): CardTimes {
    let card = this.#cards.get(node);
    if (card === undefined) this.#cards.set(node, (card = { sendFreeMs: 0, receiveFreeMs: 0 }));
    return card;
  }
}
