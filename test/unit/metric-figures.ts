import { countsOf } from '../../main-node/cluster/peer-totals.js';
import type { ClusterFigures } from '../../main-node/metrics/cluster-metrics.js';
import type { RequestEnd } from '../../main-node/rpc/request-observer.js';
import { emptyNodeStatus } from '../../shared/wire/node-status.js';
import type { NodeStatus, RoleName } from '../../shared/wire/messages.js';

function nodeStatus(role: RoleName, id: string, status: Partial<NodeStatus> = {}): NodeStatus {
  const identity = {
    id,
    role,
    cluster: 'home',
    protocolVersion: 9,
    modelName: 'storyteller',
    packDigest: 'abc',
    bootId: `boot-${id}`,
    address: 'a:1',
    device: 'cpu',
    release: '1.2.3',
  };
  return { ...emptyNodeStatus(identity), ...status };
}

const POOLS = { full: 4, compressed: 3, signMantissa: 2, exponent: 1 };
const CACHE = { policy: 'lru', bytes: 50, capacities: POOLS, kept: POOLS, hits: POOLS, misses: 9, packed: 0 };
export const MAIN_STATUS = nodeStatus('ROLE_MAIN', 'main', {
  deviceMemoryUsedBytes: 1000,
  weightBytes: 700,
  deviceContextBytes: 100,
  residentMemoryBytes: 5000,
  keyValueBytes: 150,
  prefixBytes: 30,
  uptimeMs: 2500,
});
/** A name that must be escaped. */
const WORKER_ID = 'w"1\\';
const WORKER_STATUS = nodeStatus('ROLE_WORKER', WORKER_ID, {
  slots: 2,
  slotsInUse: 1,
  slotBytes: 10,
  loads: 30,
  headLoads: 4,
  storageReadBytes: 3000,
  cache: CACHE,
  hostMemory: { budgetBytes: 90, heldBytes: 60, experts: 3, loads: 12, loadedBytes: 240, filledBytes: 60 },
});

const SHADOW_STATUS = nodeStatus('ROLE_SHADOW', 'shadow', { predictedPositions: 40 });

/** Figures of a cluster with these nodes; by default main, shadow and one worker. */
export function metricFigures(nodes: NodeStatus[] = [MAIN_STATUS, SHADOW_STATUS, WORKER_STATUS]): ClusterFigures {
  const peers = nodes.filter(({ identity }) => identity.role !== 'ROLE_MAIN');
  return {
    arithmetic: 'exact',
    rows: {
      retainedPrefixes: 3,
      droppedPrefixes: 2,
      decisionBytes: 7,
      storedBytes: 5,
      storedHits: 1,
      storedTokens: 64,
    },
    peerCounts: new Map(peers.map((peer) => [peer.identity.id, countsOf(peer)])),
    status: {
      nodes,
      placement: null,
      groupReason: '',
      httpAddress: '',
      problems: [],
      activeSequences: 1,
      queuedRequests: 2,
      requests: 3,
      tokens: 4,
      passes: null,
      verification: { share: 0.1, agreed: 3, differed: 1, dropped: 2, impossible: 0, open: 0, obstacle: '' },
      ownWorkerId: '',
      layerWaits: [0, 1].map((layer) => ({ layer, passes: 1, waitMs: 3, stallMs: 1, slowestWorker: '' })),
      workerWaits: peers.filter(isWorker).map(({ identity }) => ({
        worker: identity.id,
        executes: 1,
        waitMs: 3,
        stallMs: 1,
        executeMs: 1.5,
        otherMs: 0.5,
        lastShare: 0.25,
        costMs: 1,
      })),
      workerHops: peers.filter(isWorker).map(({ identity }) => ({
        worker: identity.id,
        hops: 1,
        median: { roundTripMs: 3, transitMs: 1, callMs: 0.25, handOffMs: 0.5, executeMs: 1, replyMs: 0.25 },
        p99: { roundTripMs: 6, transitMs: 2, callMs: 0.5, handOffMs: 1, executeMs: 2, replyMs: 0.5 },
      })),
      links: peers.map(({ identity }) => ({ peer: identity.id, sentBytes: 11, receivedBytes: 22, roundTripMs: 1.5 })),
    },
  };
}

function isWorker({ identity }: NodeStatus): boolean {
  return identity.role === 'ROLE_WORKER';
}

export const ENDED_REQUEST: RequestEnd = {
  code: 'ok',
  durationMs: 4000,
  tokens: 11,
  timing: {
    ttftMs: 1500,
    tpotMs: 250,
    decodeTokensPerS: 4,
    outputTokensPerS: 3,
    queuedMs: 100,
    ioStallMs: 20,
  },
  cost: {
    activations: { inTime: 5, late: 2, missed: 1, unpredicted: 0 },
    reloads: 3,
    ioStallMs: 20,
    drafts: { proposed: 8, accepted: 6 },
    draftsByMaker: new Map([['lookup', { proposed: 8, accepted: 6 }]]),
    cachedTokens: 4,
  },
};
