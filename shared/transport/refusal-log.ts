import type { Logger } from '../base/log/logger.js';
import { RecentMap } from '../base/runtime/recent-map.js';
import type { NodeIdentity, Refusal } from '../wire/messages.js';

/** Most refusals that are remembered. The least recent ones are forgotten, and would be logged again. */
export const MAX_REMEMBERED_REFUSALS = 256;

/** Logs the reasons why peers are refused. Each pair of peer and reason is logged once, however often the peer comes back. */
export class RefusalLog {
  private readonly logged = new RecentMap<string, NodeIdentity['id']>(MAX_REMEMBERED_REFUSALS);

  constructor(private readonly log: Logger) {}

  refused(peer: NodeIdentity, refusal: Refusal): void {
    const key = JSON.stringify([peer.id, refusal.message]);
    if (this.logged.get(key) !== undefined) return;
    this.logged.set(key, peer.id);
    this.log.warn('refused a peer', { peer: peer.id, code: refusal.code, reason: refusal.message });
  }

  /** Forgets the refusals of a peer that is welcome now, so that a later refusal is logged again. */
  welcomed(peer: NodeIdentity): void {
    for (const [key, id] of this.logged) if (id === peer.id) this.logged.delete(key);
  }
}
