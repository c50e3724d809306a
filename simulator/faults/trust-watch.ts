import type { NodeTrust } from '../../engine/trust/node-trust.js';
import type { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import type { MethodRules } from '../../shared/transport/methods.js';
import type { PeerContext } from '../../shared/transport/peer-context.js';
import { readPeerCertificate } from '../../shared/transport/trust/certificate.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';
import { REMOVAL_GRACE_MS } from '../../shared/wire/limits.js';
import type { ChannelSide } from '../network/channel.js';
import type { DoorWatch, MemoryNetwork } from '../network/memory-network.js';
import { MAIN_ID } from '../simulate/cluster-set-up.js';
import type { KeyLedger } from './key-ledger.js';

/** Time after which every connection with a peer must have ended that a roster does not list any more. */
export const REMOVAL_BOUND_MS = REMOVAL_GRACE_MS + 50;

/** Checks who gets into a cluster with an authority. It trusts the ledger, and nothing that the daemons say of a peer. */
export class TrustWatch implements DoorWatch {
  readonly violations: string[] = [];
  /** Connections that ports refused. */
  refusedConnections = 0;
  private readonly trusts = new Map<VirtualRuntime, NodeTrust>();
  private readonly highest = new Map<string, number>();
  private readonly said = new Set<string>();

  constructor(
    private readonly clock: VirtualClock,
    private readonly network: MemoryNetwork,
    private readonly ledger: KeyLedger,
  ) {
    network.doorWatch = this;
  }

  /** A process of the node starts. */
  opened(id: string, trust: NodeTrust, runtime: VirtualRuntime): void {
    this.trusts.set(runtime, trust);
    this.noteCount(id, trust);
    trust.watch(() => {
      this.noteCount(id, trust);
      const count = countOf(trust);
      this.clock.schedule(this.clock.nowMs + REMOVAL_BOUND_MS, () => this.checkOpen(id, count, runtime));
    });
  }

  handled(side: ChannelSide, { path, callers }: MethodRules & { path: string }, { caller }: PeerContext): void {
    const trust = this.trusts.get(side.owner.runtime);
    if (trust === undefined) return;
    const shown = side.peer?.shown ?? null;
    const place = `${side.peerHost} reached ${path} of ${side.owner.host}`;
    const peer = shown === null ? null : readPeerCertificate(shown, trust.authority);
    if (peer === null || isRefusal(peer)) return this.violate(`${place} without a certificate of the cluster`);
    const key = this.ledger.keyOf(peer.keyDigest);
    if (key === null) return this.violate(`${place} with a key that was never listed`);
    if (this.ledger.isOver(peer.keyDigest, countOf(trust)))
      this.violate(`${place} with a key that is not good any more`);
    if (!callers.has(key.role)) this.violate(`${place} as ${key.role}, which may not call it`);
    if (caller?.id !== key.id || caller.role !== key.role || caller.cluster !== key.cluster)
      this.violate(`${place} as ${caller?.role} ${caller?.id}, and its key is that of ${key.role} ${key.id}`);
  }

  refused(): void {
    this.refusedConnections += 1;
  }

  violate(detail: string): void {
    if (this.said.has(detail)) return;
    this.said.add(detail);
    this.violations.push(detail);
  }

  /** A node keeps its newest roster over restarts. Main alone may be started with a copy of an older disk. */
  private noteCount(id: string, trust: NodeTrust): void {
    const count = countOf(trust);
    const before = this.highest.get(id) ?? 0;
    if (count < before && id !== MAIN_ID) this.violate(`${id} goes back from the roster ${before} to ${count}`);
    this.highest.set(id, Math.max(before, count));
  }

  /** `count`: of the roster that the node has had for REMOVAL_BOUND_MS. */
  private checkOpen(id: string, count: number, runtime: VirtualRuntime): void {
    if (!runtime.isRunning) return;
    for (const { certified, peerHost, path, dialled } of this.network.openSidesOf(runtime)) {
      const peer = dialled?.peer ?? certified;
      if (peer === null || !this.ledger.isOver(peer.keyDigest, count)) continue;
      this.violate(`${id} still has ${path} with ${peerHost}, whose key is not good any more`);
    }
  }
}

function countOf(trust: NodeTrust): number {
  return trust.roster?.count ?? 0;
}
