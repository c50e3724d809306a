import type { Logger } from '../../base/log/logger.js';
import { RecentMap } from '../../base/runtime/recent-map.js';
import { type Rate, TokenBucket } from '../../base/runtime/token-buckets.js';
import type { Runtime } from '../../base/runtime/runtime.js';
import type { DiscoveredPeer } from './txt-record.js';

/** Peers of which this process remembers that it has named them. */
const NAMED_LIMIT = 256;
/** Lines of the log about such peers: any program can advertise any number of them. */
const LINES: Rate = { burst: 16, perSecond: 0.1 };

/**
 * Null: the peer may be dialled. Otherwise the reason why not: it would refuse this daemon, or this daemon it. `own`: the first digits of this
 * daemon's authority, as mDNS carries them; null: its cluster has none. Pure.
 */
export function authorityProblem({ authority }: Pick<DiscoveredPeer, 'authority'>, own: string | null): string | null {
  if (authority === own) return null;
  if (own === null) return `its cluster has an authority (${String(authority)}), and this daemon has not joined it`;
  if (authority === null) return `it has no authority, and this daemon's cluster has (${own})`;
  return `it is of another authority (${authority}) than this daemon (${own})`;
}

/** Says once for each peer why it is left alone, and only so often. */
export class LeftOutPeers {
  private readonly named = new RecentMap<string, true>(NAMED_LIMIT);
  private readonly lines: TokenBucket;

  constructor(
    private readonly log: Logger,
    runtime: Pick<Runtime, 'nowMs'>,
  ) {
    this.lines = new TokenBucket(LINES, () => runtime.nowMs());
  }

  add({ id, address }: Pick<DiscoveredPeer, 'id' | 'address'>, reason: string): void {
    const key = JSON.stringify([id, address, reason]);
    if (this.named.get(key) !== undefined || !this.lines.take()) return;
    this.named.set(key, true);
    this.log.info('a node that names this cluster is left alone', { peer: id, address, reason });
  }
}
