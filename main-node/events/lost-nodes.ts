import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { NodeIdentity, NodeStatus, PeerProblem } from '../../shared/wire/messages.js';

/** Time for which a lost node is reported, unless it comes back before. */
export const LOST_REMEMBERED_MS = 10 * 60_000;
/** Most nodes that are reported as lost. Beyond that, nodes without a part in the cluster are forgotten first, then those that were lost first. */
export const MAX_LOST_NODES = 256;

/** The link to a daemon that is not connected any more. */
export interface GoneLink {
  readonly identity: NodeIdentity;
  readonly address: string;
  readonly status: NodeStatus | null;
}

/** A daemon that was connected, and is not any more. */
export interface LostNode extends GoneLink {
  reason: string;
  /** It was in the placement, or main's shadow. */
  wasUsed: boolean;
  lostMs: number;
}

/** Nodes that were connected a while ago. */
export class LostNodes {
  /** By id, in the order in which they were lost. */
  private readonly nodes = new Map<string, LostNode>();

  constructor(private readonly nowMs: () => number) {}

  lost({ identity, address, status }: GoneLink, reason: string, wasUsed: boolean): void {
    this.nodes.delete(identity.id);
    this.nodes.set(identity.id, { identity, address, status, reason, wasUsed, lostMs: this.nowMs() });
    if (this.nodes.size > MAX_LOST_NODES) this.forgetOne();
  }

  /** A stranger can connect and leave as often as it likes: it must not push out a node that did the cluster's work. */
  private forgetOne(): void {
    const all = [...this.nodes.values()];
    const least = all.find((node) => !node.wasUsed) ?? all[0];
    if (least !== undefined) this.nodes.delete(least.identity.id);
  }

  /** Lost nodes that are not back. `connected`: ids of the connected nodes. */
  list(connected: ReadonlySet<string>): LostNode[] {
    const dueMs = this.nowMs() - LOST_REMEMBERED_MS;
    for (const [id, { lostMs }] of this.nodes) if (lostMs <= dueMs || connected.has(id)) this.nodes.delete(id);
    return [...this.nodes.values()];
  }
}

/** Adds lost nodes to the problems. That a lost node cannot be dialled, either, is left out. */
export function problemsWithLost(problems: readonly PeerProblem[], lost: readonly LostNode[]): PeerProblem[] {
  const ids = new Set(lost.map(({ identity }) => identity.id));
  return [
    ...lost.map(({ identity: { id, role }, address, reason }) => {
      const code: ErrorCode = role === 'ROLE_SHADOW' ? 'SHADOW_LOST' : 'WORKER_LOST';
      return { address, id, code, message: `it is lost: ${reason}` };
    }),
    ...problems.filter(({ id, code }) => code !== 'TIMEOUT' || !ids.has(id)),
  ];
}
