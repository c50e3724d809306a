import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { PeerStream } from '../../shared/transport/peer-stream.js';
import { REMOVAL_GRACE_MS } from '../../shared/wire/limits.js';
import type { ChannelOwner, ChannelSide } from './channel.js';
import { NOT_ADMITTED } from './memory-streams.js';

/** The open connections of the peers that a server has admitted. They end when a newer roster does not admit their peer any more. */
export class AdmittedSides {
  /** Each with its stream; null: it is a call. */
  private readonly open = new Map<ChannelSide, PeerStream<never, unknown> | null>();
  private readonly unwatch: (() => void) | null;

  constructor(private readonly owner: ChannelOwner) {
    this.unwatch = owner.trust?.watch(() => this.endRefused()) ?? null;
  }

  add(side: ChannelSide, stream: PeerStream<never, unknown> | null): void {
    if (this.unwatch === null) return;
    for (const before of this.open.keys()) if (!before.isOpen) this.open.delete(before);
    this.open.set(side, stream);
  }

  stop(): void {
    this.unwatch?.();
  }

  /** Streams get words first, and all else ends soon after. */
  private endRefused(): void {
    const { trust, runtime } = this.owner;
    for (const [side, stream] of [...this.open]) {
      if (trust === null || !side.isOpen || side.certified === null) continue;
      side.certified = trust.withNewestKey(side.certified);
      const refusal = trust.refusalOf(side.certified);
      if (refusal === null) continue;
      stream?.close(new OdmoeError('TRUST_REFUSED', refusal));
      runtime.background(REMOVAL_GRACE_MS, () => side.lose(NOT_ADMITTED));
    }
  }
}
