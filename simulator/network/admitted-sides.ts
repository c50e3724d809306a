import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { PeerStream } from '../../shared/transport/peer-stream.js';
import { StandingPeer } from '../../shared/transport/trust/standing-peer.js';
import { REMOVAL_GRACE_MS } from '../../shared/wire/limits.js';
import type { ChannelOwner, ChannelSide } from './channel.js';
import { NOT_ADMITTED } from './memory-streams.js';

interface AdmittedSide {
  /** Null: it is a call. */
  readonly stream: PeerStream<never, unknown> | null;
  readonly standing: StandingPeer | null;
}

/** The open connections of the peers that a server has admitted. They end when a newer roster does not admit their peer any more. */
export class AdmittedSides {
  private readonly open = new Map<ChannelSide, AdmittedSide>();
  private readonly unwatch: (() => void) | null;

  constructor(private readonly owner: ChannelOwner) {
    this.unwatch = owner.trust?.watch(() => this.endRefused()) ?? null;
  }

  add(side: ChannelSide, stream: PeerStream<never, unknown> | null): void {
    if (this.unwatch === null) return;
    for (const before of this.open.keys()) if (!before.isOpen) this.open.delete(before);
    const { trust } = this.owner;
    const standing = trust === null || side.certified === null ? null : new StandingPeer(side.certified, trust);
    this.open.set(side, { stream, standing });
  }

  stop(): void {
    this.unwatch?.();
  }

  /** Streams get words first, and all else ends soon after. */
  private endRefused(): void {
    const { runtime } = this.owner;
    for (const [side, { stream, standing }] of [...this.open]) {
      if (standing === null || !side.isOpen) continue;
      const refusal = standing.refusal();
      side.certified = standing.peer;
      if (refusal === null) continue;
      stream?.close(new OdmoeError('TRUST_REFUSED', refusal));
      runtime.background(REMOVAL_GRACE_MS, () => side.lose(NOT_ADMITTED));
    }
  }
}
