import type { EmulationSettings } from '../../shared/settings/node-settings.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { MessageCodec } from '../../shared/wire/codecs.js';
import type { MessageDuplex } from '../../shared/transport/peer-stream.js';
import type { PacedDuplex, PeerMessage, StreamPace } from '../../shared/transport/stream-pace.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { DeviceProfile } from './device-profile.js';
import { loadDeviceProfile } from './load-device-profile.js';
import { messageBytes } from './message-bytes.js';
import { EmulatedNetworkCard } from './network-card.js';

/** Most bytes of messages that a stream may hold because the emulated network has not delivered them yet. */
const HELD_LIMIT_BYTES = 256 * 1024 * 1024;
/** No protobuf message begins with this byte (field 0, wire type 7): so a peer without an emulated network detects the mismatch at once. */
const MARK = 0x07;
/** Bytes before each message: the mark, then two float64: the time when the sender's card has sent it, and its bytes on the profiled network. */
const MARK_BYTES = 17;
/** Handed over in place of a message that came without a mark. */
const UNMARKED = Buffer.alloc(0);
/** A time that differs by more than this does not come from this cluster. */
const MARK_RANGE_MS = 600_000;

/**
 * The emulated network of one daemon: one card, which all its streams share. A message is really sent at once, with the time when the sender's
 * card will have sent it; the receiver holds it until its card has received it. Times are the runtime's, which all processes of a machine
 * share.
 */
export class NetworkPace implements StreamPace {
  private readonly card: EmulatedNetworkCard;

  constructor(
    private readonly profile: DeviceProfile,
    private readonly runtime: Runtime,
  ) {
    this.card = new EmulatedNetworkCard(profile.network);
  }

  codec<Message extends PeerMessage>(inner: MessageCodec<Message>): MessageCodec<Message> {
    return {
      encode: (message) => {
        const bytes = messageBytes(message, this.profile);
        const sentMs = this.card.sendEnd(bytes, this.runtime.eventMs());
        return marked(inner.encode(message), sentMs, bytes);
      },
      decode: (bytes) => {
        if (bytes === UNMARKED) throw unmarked();
        return inner.decode(bytes);
      },
    };
  }

  duplex(inner: MessageDuplex): PacedDuplex {
    return new HoldingDuplex(inner, this.runtime, (sentMs, bytes) => this.receivedMs(sentMs, bytes));
  }

  /** Time when the card has received a message. */
  private receivedMs(sentMs: number, bytes: number): number {
    const nowMs = this.runtime.eventMs();
    return this.card.receiveEnd(bytes, sentMs, nowMs);
  }
}

/** The emulated network for a daemon's settings; null: it uses the real network. */
export function networkPaceOf(emulation: EmulationSettings | null, runtime: Runtime): NetworkPace | null {
  return emulation === null ? null : new NetworkPace(loadDeviceProfile(emulation.profilePath), runtime);
}

function marked(message: Buffer, sentMs: number, profiledBytes: number): Buffer {
  const whole = Buffer.allocUnsafe(MARK_BYTES + message.length);
  whole[0] = MARK;
  whole.writeDoubleLE(sentMs, 1);
  whole.writeDoubleLE(profiledBytes, 9);
  message.copy(whole, MARK_BYTES);
  return whole;
}

function unmarked(): OdmoeError {
  return new OdmoeError(
    'PROTOCOL_VIOLATION',
    'a message came without a time of sending, or too many came: give all daemons of an emulated cluster the same --profile, and others none',
  );
}

interface HeldMessage {
  bytes: Buffer;
  dueMs: number;
}

/** Hands messages over in order, each at its time. */
class HoldingDuplex implements PacedDuplex {
  private readonly held: HeldMessage[] = [];
  private heldBytes = 0;
  private handing = false;
  private readonly whenEmpty: (() => void)[] = [];

  constructor(
    private readonly inner: MessageDuplex,
    private readonly runtime: Runtime,
    private readonly receivedMs: (sentMs: number, bytes: number) => number,
  ) {}

  get readableEnded(): boolean {
    return this.inner.readableEnded && this.held.length === 0;
  }

  write(bytes: Buffer, written: () => void): unknown {
    return this.inner.write(bytes, written);
  }

  on(event: 'data', handler: (bytes: Buffer) => void): unknown {
    return this.inner.on(event, (whole) => {
      if (!this.isMarked(whole) || this.heldBytes + whole.length > HELD_LIMIT_BYTES) {
        handler(UNMARKED);
        return;
      }
      this.held.push({ bytes: whole.subarray(MARK_BYTES), dueMs: this.dueMs(whole) });
      this.heldBytes += whole.length;
      if (!this.handing) void this.handOver(handler);
    });
  }

  afterDelivery(then: () => void): void {
    if (this.held.length === 0) then();
    else this.whenEmpty.push(then);
  }

  private isMarked(whole: Buffer): boolean {
    if (whole.length < MARK_BYTES || whole[0] !== MARK) return false;
    const profiledBytes = whole.readDoubleLE(9);
    const isSize = profiledBytes >= 0 && profiledBytes <= HELD_LIMIT_BYTES;
    return isSize && Math.abs(whole.readDoubleLE(1) - this.runtime.nowMs()) <= MARK_RANGE_MS;
  }

  private dueMs(whole: Buffer): number {
    return this.receivedMs(whole.readDoubleLE(1), whole.readDoubleLE(9));
  }

  private async handOver(handler: (bytes: Buffer) => void): Promise<void> {
    this.handing = true;
    for (let next = this.held[0]; next !== undefined; next = this.held[0]) {
      await this.runtime.outside(NOTHING_TO_DO, next.dueMs);
      this.held.shift();
      this.heldBytes -= next.bytes.length + MARK_BYTES;
      handler(next.bytes);
    }
    this.handing = false;
    for (const then of this.whenEmpty.splice(0)) then();
  }
}

const NOTHING_TO_DO = (): Promise<void> => Promise.resolve();
