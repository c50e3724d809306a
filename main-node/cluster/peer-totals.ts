import type { LinkBytes, NodeStatus } from '../../shared/wire/messages.js';
import { RecentMap } from '../../shared/base/runtime/recent-map.js';

/** Peers that are remembered; of more, those that were asked of least recently are forgotten. */
const MAX_REMEMBERED_PEERS = 1024;

/** What is asked of the link to a peer. */
export interface CountedPeer {
  readonly id: string;
  readonly status: NodeStatus | null;
  /** Bytes of messages over this connection, and how soon the peer answers over it. */
  readonly traffic: Omit<LinkBytes, 'peer'>;
}

/** What a node counts since its start, that is of use added up over its starts. */
const COUNTERS = [
  ...(['loads', 'reloads', 'evictions', 'executions', 'storageReadBytes', 'fetchReceivedBytes'] as const),
  ...(['staleMessages', 'latePredictions', 'droppedPredictions', 'predictedPositions'] as const),
  ...(['alignedTokens', 'alignedKvRows'] as const),
];
const CACHE_COUNTERS = ['cacheWholeHits', 'cachePartHits', 'cacheMisses'] as const;
const HOST_MEMORY_COUNTERS = ['hostMemoryLoads', 'hostMemoryLoadedBytes'] as const;

export type PeerCounter =
  (typeof COUNTERS)[number] | (typeof CACHE_COUNTERS)[number] | (typeof HOST_MEMORY_COUNTERS)[number];
export type PeerCounts = Record<PeerCounter, number>;

interface RememberedPeer {
  /** Of connections that have ended. */
  sentBytes: number;
  receivedBytes: number;
  /** Of starts of its daemon before this one. */
  before: PeerCounts | null;
  bootId: string;
  /** As it last told. */
  latest: PeerCounts | null;
}

/**
 * What main counts of each peer, which only grows while main runs: over all connections to it, and over all starts of its daemon. What a
 * daemon did between its last status (they come each second) and its end is not in it.
 */
export class PeerTotals {
  private readonly peers = new RecentMap<string, RememberedPeer>(MAX_REMEMBERED_PEERS);

  /** The connection has ended. */
  ended(link: CountedPeer): void {
    const peer = this.told(link);
    peer.sentBytes += link.traffic.sentBytes;
    peer.receivedBytes += link.traffic.receivedBytes;
  }

  bytes({ id, traffic }: CountedPeer): LinkBytes {
    const peer = this.peers.get(id);
    return {
      peer: id,
      sentBytes: (peer?.sentBytes ?? 0) + traffic.sentBytes,
      receivedBytes: (peer?.receivedBytes ?? 0) + traffic.receivedBytes,
      roundTripMs: traffic.roundTripMs,
    };
  }

  /** Null: it has told nothing yet. */
  counts(link: CountedPeer): PeerCounts | null {
    const { before, latest } = this.told(link);
    return latest === null || before === null ? latest : sumOf(before, latest);
  }

  private told({ id, status }: CountedPeer): RememberedPeer {
    const peer = this.remember(id);
    if (status === null) return peer;
    const { bootId } = status.identity;
    if (peer.bootId !== bootId) {
      if (peer.latest !== null) peer.before = peer.before === null ? peer.latest : sumOf(peer.before, peer.latest);
      peer.bootId = bootId;
    }
    peer.latest = countsOf(status);
    return peer;
  }

  private remember(id: string): RememberedPeer {
    return this.peers.of(id, () => ({ sentBytes: 0, receivedBytes: 0, before: null, bootId: '', latest: null }));
  }
}

/** main's own line has them, too. */
export function countsOf(status: NodeStatus): PeerCounts {
  const own = Object.fromEntries(COUNTERS.map((name) => [name, status[name]])) as Record<
    (typeof COUNTERS)[number],
    number
  >;
  const hits = status.cache?.hits;
  return {
    ...own,
    cacheWholeHits: hits?.full ?? 0,
    cachePartHits: hits === undefined ? 0 : hits.compressed + hits.signMantissa + hits.exponent,
    cacheMisses: status.cache?.misses ?? 0,
    hostMemoryLoads: status.hostMemory?.loads ?? 0,
    hostMemoryLoadedBytes: status.hostMemory?.loadedBytes ?? 0,
  };
}

function sumOf(left: PeerCounts, right: PeerCounts): PeerCounts {
  const sum = { ...left };
  for (const name of [...COUNTERS, ...CACHE_COUNTERS, ...HOST_MEMORY_COUNTERS]) sum[name] += right[name];
  return sum;
}
