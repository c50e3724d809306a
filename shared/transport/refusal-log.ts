import type { Logger } from '../base/log/logger.js';
import { RecentMap } from '../base/runtime/recent-map.js';
import type { NodeIdentity, Refusal } from '../wire/messages.js';

/** Refusals remembered; of more, those that came least recently are forgotten, and would be logged again. */
export const MAX_REMEMBERED_REFUSALS = 256;

/** Logs why peers are refused: once a peer and reason, however often it comes back with the same. */
export class RefusalLog {
  private readonly logged = new RecentMap<string, NodeIdentity['id']>(MAX_REMEMBERED_REFUSALS);

  constructor(private readonly log: Logger) {}

  refused(peer: NodeIdentity, refusal: Refusal): void {
    const key = JSON.stringify([peer.id, refusal.message]);
    if (this.logged.get(key) !== undefined) return;
    this.logged.set(key, peer.id);
    this.log.warn('refused a peer', { peer: peer.id, code: refusal.code, reason: refusal.message });
  }

  /** The peer is welcome now: a later refusal is news. */
  welcomed(peer: NodeIdentity): void {
    for (const [key, id] of this.logged) if (id === peer.id) this.logged.delete(key);
  }
}
