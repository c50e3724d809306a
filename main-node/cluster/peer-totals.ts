import type { LinkBytes, NodeStatus } from '../../shared/wire/messages.js';
import { RecentMap } from '../../shared/base/runtime/recent-map.js';
import { countInParts } from '../../shared/decisions/caching/pool-capacities.js';

/** Most peers that are remembered. A full map forgets the peer that was used least recently. */
const MAX_REMEMBERED_PEERS = 1024;

/** The parts of a link to a peer that are counted. */
export interface CountedPeer {
  readonly id: string;
  readonly status: NodeStatus | null;
  /** Bytes of messages over this connection, and the round-trip time to the peer. */
  readonly traffic: Omit<LinkBytes, 'peer'>;
}

/** Counters of a node since its start that are useful as a sum over its starts. */
const COUNTERS = [
  ...(['loads', 'reloads', 'headLoads', 'evictions', 'executions'] as const),
  ...(['storageReadBytes', 'fetchReceivedBytes'] as const),
  ...(['staleMessages', 'latePredictions', 'droppedPredictions', 'predictedPositions'] as const),
  ...(['alignedTokens', 'alignedKvRows'] as const),
];
const CACHE_COUNTERS = ['cacheWholeHits', 'cachePartHits', 'cacheMisses'] as const;
const HOST_MEMORY_COUNTERS = ['hostMemoryLoads', 'hostMemoryLoadedBytes'] as const;

export type PeerCounter =
  | (typeof COUNTERS)[number]
  | (typeof CACHE_COUNTERS)[number]
  | (typeof HOST_MEMORY_COUNTERS)[number];
export type PeerCounts = Record<PeerCounter, number>;

interface RememberedPeer {
  /** Bytes of connections that have ended. */
  sentBytes: number;
  receivedBytes: number;
  /** Counts of earlier starts of its daemon. */
  before: PeerCounts | null;
  bootId: string;
  /** The counts in its last status. */
  latest: PeerCounts | null;
}

/**
 * Main's counts of each peer, over all connections to it and all starts of its daemon; they only grow while main runs. They lack the work that a
 * daemon did between its last status (one comes each second) and its end.
 */
export class PeerTotals {
  private readonly peers = new RecentMap<string, RememberedPeer>(MAX_REMEMBERED_PEERS);

  /** The connection has ended. */
  ended(link: CountedPeer): void {
    const peer = this.totalsOf(link);
    peer.sentBytes += link.traffic.sentBytes;
    peer.receivedBytes += link.traffic.receivedBytes;
  }

  /** A connection to a peer of this id has ended before. */
  has(id: string): boolean {
    return this.peers.has(id);
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

  /** Null: the peer has sent no status yet. */
  counts(link: CountedPeer): PeerCounts | null {
    const { before, latest } = this.totalsOf(link);
    return latest === null || before === null ? latest : sumOf(before, latest);
  }

  private totalsOf({ id, status }: CountedPeer): RememberedPeer {
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

/** Main's own status has these counters, too. */
export function countsOf(status: NodeStatus): PeerCounts {
  const own = Object.fromEntries(COUNTERS.map((name) => [name, status[name]])) as Record<
    (typeof COUNTERS)[number],
    number
  >;
  const hits = status.cache?.hits;
  return {
    ...own,
    cacheWholeHits: hits?.full ?? 0,
    cachePartHits: hits === undefined ? 0 : countInParts(hits),
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
