import type { ClusterData, HopView, MemoryView, NodeView } from '../../shared/wire/cluster-events.js';

const MB = 1e6;
const GB = 1e9;

export const SAMPLE_EXPERT_LAYERS = 48;
export const SAMPLE_EXPERTS = 128;
const START_MS = 3 * 3_600_000;

function memoryOf(parts: Partial<MemoryView>, budgetBytes: number): MemoryView {
  const memory = {
    contextBytes: 0,
    weightBytes: 0,
    keyValueBytes: 0,
    prefixBytes: 0,
    slotBytes: 0,
    cacheBytes: 0,
    otherBytes: 0,
    ...parts,
  };
  const { contextBytes, weightBytes, keyValueBytes, slotBytes, cacheBytes, otherBytes } = memory;
  const usedBytes = contextBytes + weightBytes + keyValueBytes + slotBytes + cacheBytes + otherBytes;
  const highWaterBytes = Math.min(budgetBytes, Math.round(usedBytes * 1.06));
  return { ...memory, usedBytes, highWaterBytes, budgetBytes, residentBytes: Math.round(usedBytes * 0.3 + 210 * MB) };
}

const IDLE: Omit<NodeView, 'id' | 'role' | 'address' | 'device' | 'memory'> = {
  state: 'up',
  othersLackBytes: 0,
  isOnMain: false,
  reason: '',
  group: null,
  deviceReason: '',
  release: '0.1.0',
  uptimeMs: START_MS,
  link: { roundTripMs: 0.41, sentBytes: 61_000_000, receivedBytes: 48_000_000 },
  waits: null,
  hops: null,
  slots: null,
  loads: 0,
  reloads: 0,
  loadMsMean: 0,
  executeMsMean: 0,
  storageReadBytes: 0,
  fetch: null,
};

function hopOf(executeMs: number, times: number): HopView {
  const [transitMs, callMs, handOffMs, replyMs] = [0.31 * times, 0.05 * times, 0.12 * times, 0.03 * times];
  const roundTripMs = transitMs + callMs + handOffMs + executeMs + replyMs;
  return { roundTripMs, transitMs, callMs, handOffMs, executeMs, replyMs };
}

function worker(number: number, group: number | null, changes: Partial<NodeView> = {}): NodeView {
  const stallMs = 2.1 + number * 0.4;
  const executeMs = 1.6 + number * 0.1;
  return {
    ...IDLE,
    id: `orin-${number}`,
    role: 'worker',
    group,
    device: 'cuda: Orin NX 16 GB',
    address: `192.168.1.${20 + number}:7602`,
    memory: memoryOf(
      { contextBytes: 310 * MB, weightBytes: 4 * MB, slotBytes: 76 * MB, cacheBytes: 9.8 * GB, otherBytes: 180 * MB },
      13 * GB,
    ),
    link: { roundTripMs: 0.38 + number * 0.03, sentBytes: 18_000_000 * number, receivedBytes: 21_000_000 * number },
    waits: { waitMs: stallMs + executeMs + 0.6, stallMs, executeMs, otherMs: 0.6, lastShare: 0.18 + 0.05 * number },
    hops: {
      median: hopOf(executeMs, 1),
      p99: hopOf(executeMs, 3.4),
    },
    slots: { count: 8, inUse: 3 },
    loads: 41_230 - 3_110 * number,
    reloads: 212 + 31 * number,
    loadMsMean: 7.4 + 0.3 * number,
    executeMsMean: executeMs,
    storageReadBytes: (390 - 22 * number) * GB,
    ...changes,
  };
}

function mainAndShadow(): NodeView[] {
  return [
    {
      ...IDLE,
      id: 'desk',
      role: 'main',
      device: 'cuda: RTX 3090',
      address: '192.168.1.10:7600',
      memory: memoryOf(
        {
          contextBytes: 420 * MB,
          weightBytes: 3.1 * GB,
          keyValueBytes: 5.6 * GB,
          prefixBytes: 3.9 * GB,
          otherBytes: 640 * MB,
        },
        22 * GB,
      ),
      link: null,
    },
    {
      ...IDLE,
      id: 'tower',
      role: 'shadow',
      device: 'cuda: RTX 4060 Ti',
      address: '192.168.1.11:7601',
      memory: memoryOf(
        { contextBytes: 380 * MB, weightBytes: 16.4 * GB, keyValueBytes: 1.4 * GB, otherBytes: 310 * MB },
        19.5 * GB,
      ),
    },
  ];
}

/** On main's clock. */
export function sampleMs(secondsOn: number): number {
  return START_MS + secondsOn * 1000;
}

/** Main, shadow, and five workers in two groups: one has been lost, one fetches its experts. */
export function sampleCluster(secondsOn: number): ClusterData {
  const heldBytes = Math.min(57 * GB, (21.4 + secondsOn * 0.11) * GB);
  const lost = {
    ...({
      state: 'lost',
      reason: 'it did not answer for 3 s (UNAVAILABLE)',
      link: null,
      waits: null,
      hops: null,
    } as const),
    slots: { count: 8, inUse: 0 },
  };
  return {
    atMs: sampleMs(secondsOn),
    name: 'home',
    release: '0.1.0',
    model: {
      name: 'Qwen3-30B-A3B',
      family: 'qwen3_moe',
      arithmetic: 'exact',
      parameters: 30.5e9,
      weightFormat: 'bf16',
      contextPositions: 32_768,
      madeForPositions: 32_768,
    },
    expertLayers: SAMPLE_EXPERT_LAYERS,
    experts: SAMPLE_EXPERTS,
    expertsPerToken: 8,
    nodes: [
      ...mainAndShadow(),
      worker(1, 0),
      worker(2, 0),
      worker(3, 1),
      worker(4, 1, lost),
      worker(5, null, {
        state: 'fetching',
        device: 'cpu: 8 threads',
        deviceReason: 'no CUDA device was found',
        release: '0.1.0',
        memory: memoryOf({ slotBytes: 76 * MB, otherBytes: 40 * MB }, 0),
        waits: null,
        hops: null,
        slots: { count: 8, inUse: 0 },
        loads: 0,
        reloads: 0,
        loadMsMean: 0,
        executeMsMean: 0,
        storageReadBytes: 0,
        uptimeMs: secondsOn * 1000,
        fetch: { heldBytes, neededBytes: 57 * GB, receivedBytes: heldBytes - 2 * GB, problem: '' },
      }),
    ],
    groups: [
      ['orin-1', 'orin-2'],
      ['orin-3', 'orin-4'],
    ],
    groupReason: 'loads decide: two workers load the experts of a layer in the time that the other group computes',
    activeRequests: 3,
    queuedRequests: 1,
    problems: [
      {
        node: 'orin-4',
        code: 'UNAVAILABLE',
        message:
          'worker orin-4 (192.168.1.24:7602) was lost: it did not answer for 3 s; orin-3 serves its layers meanwhile',
        advice: 'look whether the box is on and the cable is in; then start it again: `odmoe up`',
      },
    ],
    joinCommand: 'odmoe worker --cluster home --main 192.168.1.10:7600',
    isThisMachineOnly: false,
    hasAuthority: true,
    waitingMachines: 0,
    isInsecure: false,
  };
}

/** Main, shadow and `count` workers in groups of two, of which the third is lost; workers come in no order. */
export function sampleManyWorkers(count: number): Pick<ClusterData, 'nodes' | 'groups' | 'groupReason'> {
  const numbers = Array.from({ length: count }, (_, index) => index + 1);
  const groups = numbers.filter((number) => number % 2 === 1).map((number) => [number, number + 1]);
  const lost = { state: 'lost', reason: 'it did not answer for 3 s (UNAVAILABLE)', link: null, waits: null } as const;
  const workers = numbers.map((number) =>
    worker(number, Math.floor((number - 1) / 2), number === 3 ? { ...lost, hops: null } : { loads: 40_000 }),
  );
  return {
    nodes: [...mainAndShadow(), ...workers.reverse()],
    groups: groups.map((pair) => pair.filter((number) => number <= count).map((number) => `orin-${number}`)),
    groupReason: '',
  };
}

/** Main alone, just started. */
export function sampleClusterAlone(): ClusterData {
  const cluster = sampleCluster(0);
  const nodes = cluster.nodes.filter(({ role }) => role === 'main');
  return {
    ...cluster,
    atMs: 4_000,
    nodes,
    groups: [],
    groupReason: '',
    activeRequests: 0,
    queuedRequests: 0,
    problems: [],
  };
}
