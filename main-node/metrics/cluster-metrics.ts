import { newestProtocolOf } from '../../shared/wire/versions.js';
import { Counter, Gauge, type Registry } from 'prom-client';
import type { HopStages, NodeStatus, RoleName, StatusReply } from '../../shared/wire/messages.js';
import type { PeerCounter, PeerCounts } from '../cluster/peer-totals.js';

/** The state of the cluster, as main knows it at the time of a request for metrics. */
export interface ClusterFigures {
  status: StatusReply;
  /** Counts of each connected peer over all its starts, by id. */
  peerCounts: ReadonlyMap<string, PeerCounts>;
  /** "exact", "fast" or a sliced quality. */
  arithmetic: string;
  rows: RowFigures;
}

/** Figures of the rows of sequences on main. */
export interface RowFigures {
  retainedPrefixes: number;
  /** Count since main's start. */
  droppedPrefixes: number;
  /** Bytes of what logical caches have decided for rows. */
  decisionBytes: number;
  /** Bytes of the files of main's prefix store. */
  storedBytes: number;
  /** Prompts that began with rows of the store, and their tokens that came from there, since main's start. */
  storedHits: number;
  storedTokens: number;
}

type Sample = readonly [labels: Record<string, string>, value: number];

interface ClusterMetric {
  name: string;
  help: string;
  labels: readonly string[];
  samples: (figures: ClusterFigures) => readonly Sample[];
}

const ROLES: Readonly<Partial<Record<RoleName, string>>> = {
  ROLE_MAIN: 'main',
  ROLE_SHADOW: 'shadow',
  ROLE_WORKER: 'worker',
};

const HOP_LABELS: Readonly<Record<keyof HopStages, string>> = {
  roundTripMs: 'round_trip',
  transitMs: 'transit',
  callMs: 'call',
  handOffMs: 'hand_off',
  executeMs: 'execute',
  replyMs: 'reply',
};

const GAUGES: readonly ClusterMetric[] = [
  {
    name: 'odmoe_build_info',
    help: 'Always 1. Version and newest protocol of main, the model, the digest of its pack, and the arithmetic.',
    labels: ['version', 'protocol', 'model', 'pack', 'arithmetic'],
    samples: ({ status, arithmetic }) => {
      const main = status.nodes.find(({ identity }) => identity.role === 'ROLE_MAIN')?.identity;
      if (main === undefined) return [];
      const { release: version, modelName: model, packDigest: pack } = main;
      return [[{ version, protocol: String(newestProtocolOf(main)), model, pack, arithmetic }, 1]];
    },
  },
  {
    name: 'odmoe_nodes',
    help: 'Nodes that are up, by role: main itself and those that are connected to it.',
    labels: ['role'],
    samples: ({ status: { nodes } }) =>
      Object.entries(ROLES).map(([name, role]) => [
        { role },
        nodes.filter(({ identity }) => identity.role === name).length,
      ]),
  },
  plainGauge('odmoe_requests_active', 'Requests that are being answered.', ({ activeSequences }) => activeSequences),
  plainGauge('odmoe_requests_queued', 'Requests that wait for their turn.', ({ queuedRequests }) => queuedRequests),
  plainGauge('odmoe_sequences_waiting', 'Sequences whose rows wait for a pass.', ({ passes }) => passes?.waiting ?? 0),
  {
    name: 'odmoe_kept_prefixes',
    help: 'Beginnings of prompts whose rows main keeps for later ones.',
    labels: [],
    samples: ({ rows }) => [[{}, rows.retainedPrefixes]],
  },
  {
    name: 'odmoe_decision_bytes',
    help: 'Memory of what the logical caches of sequences have decided; it counts with their rows.',
    labels: [],
    samples: ({ rows }) => [[{}, rows.decisionBytes]],
  },
  {
    name: 'odmoe_prefix_store_bytes',
    help: "Bytes of the rows of earlier prompts and answers on main's disk (main.prefix_store).",
    labels: [],
    samples: ({ rows }) => [[{}, rows.storedBytes]],
  },
  plainGauge('odmoe_placement_epoch', 'Epoch of the placement; 0: none.', ({ placement }) => placement?.epoch ?? 0),
  plainGauge(
    'odmoe_placed_workers',
    'Workers of the placement, which answers run on.',
    ({ placement }) => placement?.workers.length ?? 0,
  ),
  plainGauge('odmoe_problems', 'Problems that "odmoe status" names.', ({ problems }) => problems.length),
  plainGauge(
    'odmoe_pass_expert_wait_seconds',
    'What a pass of decode waits for experts, all layers together; mean of the last passes.',
    ({ layerWaits }) => layerWaits.reduce((sum, { waitMs }) => sum + waitMs, 0) / 1000,
  ),
  {
    name: 'odmoe_worker_wait_seconds',
    help: "What main waits for a worker's part of a layer, by what for: load, execute, other (network and queues). Means.",
    labels: ['node', 'part'],
    samples: ({ status: { workerWaits } }) =>
      workerWaits.flatMap(({ worker: node, stallMs, executeMs, otherMs }): Sample[] => [
        [{ node, part: 'load' }, stallMs / 1000],
        [{ node, part: 'execute' }, executeMs / 1000],
        [{ node, part: 'other' }, otherMs / 1000],
      ]),
  },
  {
    name: 'odmoe_worker_hop_seconds',
    help: "Stages of main's messages to a worker that load nothing: round_trip, and of it transit (network and event loops), call, hand_off, execute, reply. Of the last hops.",
    labels: ['node', 'stage', 'quantile'],
    samples: ({ status: { workerHops } }) =>
      workerHops.flatMap(({ worker: node, median, p99 }) => [
        ...hopSamples(node, '0.5', median),
        ...hopSamples(node, '0.99', p99),
      ]),
  },
  {
    name: 'odmoe_worker_last_ratio',
    help: 'Of the layers that a worker shares with others, the part where its result is the last.',
    labels: ['node'],
    samples: ({ status: { workerWaits } }) => workerWaits.map(({ worker: node, lastShare }) => [{ node }, lastShare]),
  },
  nodeGauge('odmoe_node_uptime_seconds', 'Since the start of a node.', ({ uptimeMs }) => uptimeMs / 1000),
  processGauge(
    'odmoe_process_memory_bytes',
    "Resident memory of a node's process.",
    (node) => node.residentMemoryBytes,
  ),
  processGauge('odmoe_device_memory_used_bytes', 'Taken of the device.', (node) => node.deviceMemoryUsedBytes),
  processGauge(
    'odmoe_device_memory_high_water_bytes',
    'The most that was ever taken of the device.',
    (node) => node.deviceMemoryHighWaterBytes,
  ),
  processGauge(
    'odmoe_device_memory_budget_bytes',
    'The most that may be taken of the device; 0: no limit.',
    (node) => node.deviceMemoryBudgetBytes,
  ),
  {
    name: 'odmoe_device_memory_bytes',
    help: 'Taken of the device, by kind: context, weights, key_value_cache, prefixes, scratch, slots, cache.',
    labels: ['node', 'kind'],
    samples: ({ status }) =>
      status.nodes.flatMap((node) =>
        memoryKinds(node, status).map(([kind, bytes]): Sample => [{ node: idOf(node), kind }, bytes]),
      ),
  },
  {
    name: 'odmoe_host_memory_bytes',
    help: 'Host memory of a worker for experts as they are stored, by kind: held, budget.',
    labels: ['node', 'kind'],
    samples: ({ status: { nodes } }) =>
      nodes.flatMap(({ identity: { id: node }, hostMemory }): Sample[] =>
        hostMemory === null
          ? []
          : [
              [{ node, kind: 'held' }, hostMemory.heldBytes],
              [{ node, kind: 'budget' }, hostMemory.budgetBytes],
            ],
      ),
  },
  {
    name: 'odmoe_link_round_trip_seconds',
    help: 'How soon a node answers the questions by which main knows that it is there; a mean in which the latest weighs most.',
    labels: ['node'],
    samples: ({ status: { links } }) =>
      links.flatMap(({ peer: node, roundTripMs }): Sample[] =>
        roundTripMs > 0 ? [[{ node }, roundTripMs / 1000]] : [],
      ),
  },
  workerGauge('odmoe_slots', 'Experts that a worker can load or run at a time.', ({ slots }) => slots),
  workerGauge('odmoe_slots_in_use', 'Of these, the ones that are in use.', ({ slotsInUse }) => slotsInUse),
  workerGauge(
    'odmoe_damaged_experts',
    'Experts whose bytes on the disk are damaged, and which have not been loaded since.',
    ({ damagedExperts }) => damagedExperts,
  ),
];

const COUNTERS: readonly ClusterMetric[] = [
  plainCounter('odmoe_passes_total', 'Passes of main, each of rows of one or more sequences.', 'passes'),
  plainCounter('odmoe_pass_rows_total', 'Rows (tokens) of these passes.', 'rows'),
  plainCounter(
    'odmoe_preemptions_total',
    'Times that a sequence gave its memory back, and was computed again.',
    'preemptions',
  ),
  {
    name: 'odmoe_dropped_prefixes_total',
    help: 'Kept beginnings of prompts that had to make room for rows of answers.',
    labels: [],
    samples: ({ rows }) => [[{}, rows.droppedPrefixes]],
  },
  {
    name: 'odmoe_prefix_store_hits_total',
    help: "Prompts that began with rows from main's disk (main.prefix_store).",
    labels: [],
    samples: ({ rows }) => [[{}, rows.storedHits]],
  },
  {
    name: 'odmoe_prefix_store_tokens_total',
    help: "Tokens of prompts that were not run, because their rows came from main's disk.",
    labels: [],
    samples: ({ rows }) => [[{}, rows.storedTokens]],
  },
  {
    name: 'odmoe_verify_checks_total',
    help: 'Executions drawn to be run again by another worker (main.verify_share), by result: agreed, differed, dropped, impossible.',
    labels: ['result'],
    samples: ({ status: { verification } }) => {
      if (verification === null || verification === undefined) return [];
      const { agreed, differed, dropped, impossible } = verification;
      return Object.entries({ agreed, differed, dropped, impossible }).map(([result, count]): Sample => [
        { result },
        count,
      ]);
    },
  },
  nodeCounter('odmoe_expert_loads_total', 'Experts that a worker has loaded.', 'loads', isWorker),
  nodeCounter(
    'odmoe_head_expert_loads_total',
    "Experts of the model's own head that a worker has loaded; odmoe_expert_loads_total counts them, too.",
    'headLoads',
    isWorker,
  ),
  nodeCounter('odmoe_expert_evictions_total', 'Experts that a worker has given up for others.', 'evictions', isWorker),
  nodeCounter(
    'odmoe_expert_executions_total',
    'Experts that a worker has run, for prompts too.',
    'executions',
    isWorker,
  ),
  nodeCounter(
    'odmoe_storage_read_bytes_total',
    'What a worker has read to load experts.',
    'storageReadBytes',
    isWorker,
  ),
  nodeCounter(
    'odmoe_fetch_received_bytes_total',
    'What a worker has fetched of experts.',
    'fetchReceivedBytes',
    isWorker,
  ),
  nodeCounter('odmoe_late_predictions_total', 'Experts predicted to a worker too late.', 'latePredictions', isWorker),
  nodeCounter(
    'odmoe_predicted_positions_total',
    'Positions that a shadow has predicted.',
    'predictedPositions',
    isShadow,
  ),
  nodeCounter(
    'odmoe_host_memory_loads_total',
    'Loads of a worker that took bytes from host memory.',
    'hostMemoryLoads',
    ({ hostMemory }) => hostMemory !== null,
  ),
  nodeCounter(
    'odmoe_host_memory_loaded_bytes_total',
    'What these loads took from there in place of storage.',
    'hostMemoryLoadedBytes',
    ({ hostMemory }) => hostMemory !== null,
  ),
  nodeCounter('odmoe_dropped_predictions_total', 'Predictions that a node had no room for.', 'droppedPredictions'),
  nodeCounter('odmoe_stale_messages_total', 'Messages of older placements, not acted on.', 'staleMessages'),
  {
    name: 'odmoe_cache_uses_total',
    help: "Uses of experts by what of them a worker's memory held: whole, part or none.",
    labels: ['node', 'held'],
    samples: (figures) =>
      countsOf(figures, ({ cache }) => cache !== null).flatMap(([node, counts]): Sample[] => [
        [{ node, held: 'whole' }, counts.cacheWholeHits],
        [{ node, held: 'part' }, counts.cachePartHits],
        [{ node, held: 'none' }, counts.cacheMisses],
      ]),
  },
  {
    name: 'odmoe_link_sent_bytes_total',
    help: 'Bytes of messages that main has sent to a node.',
    labels: ['node'],
    samples: ({ status: { links } }) => links.map(({ peer: node, sentBytes }) => [{ node }, sentBytes]),
  },
  {
    name: 'odmoe_link_received_bytes_total',
    help: 'Bytes of messages that main has received from a node.',
    labels: ['node'],
    samples: ({ status: { links } }) => links.map(({ peer: node, receivedBytes }) => [{ node }, receivedBytes]),
  },
];

/** The facts of the status as metrics. All are set anew at each request, so that nodes that have left are not among them. */
export class ClusterMetrics {
  private readonly metrics: readonly { of: ClusterMetric; set: (samples: readonly Sample[]) => void }[];

  constructor(registry: Registry) {
    this.metrics = [
      ...GAUGES.map((of) => ({ of, set: gaugeSetter(of, registry) })),
      ...COUNTERS.map((of) => ({ of, set: counterSetter(of, registry) })),
    ];
  }

  take(figures: ClusterFigures): void {
    for (const { of, set } of this.metrics) set(of.samples(figures));
  }
}

function gaugeSetter({ name, help, labels }: ClusterMetric, registry: Registry): (samples: readonly Sample[]) => void {
  const gauge = new Gauge({ name, help, labelNames: labels, registers: [registry] });
  return (samples) => {
    gauge.reset();
    for (const [of, value] of samples) gauge.set(of, value);
  };
}

/** The values are totals, which only grow while the node is known (PeerTotals). */
function counterSetter(
  { name, help, labels }: ClusterMetric,
  registry: Registry,
): (samples: readonly Sample[]) => void {
  const counter = new Counter({ name, help, labelNames: labels, registers: [registry] });
  return (samples) => {
    counter.reset();
    for (const [of, value] of samples) counter.inc(of, value);
  };
}

function plainGauge(name: string, help: string, value: (status: StatusReply) => number): ClusterMetric {
  return { name, help, labels: [], samples: ({ status }) => [[{}, value(status)]] };
}

function plainCounter(name: string, help: string, count: 'passes' | 'rows' | 'preemptions'): ClusterMetric {
  return { name, help, labels: [], samples: ({ status }) => [[{}, status.passes?.[count] ?? 0]] };
}

function nodeGauge(name: string, help: string, value: (node: NodeStatus) => number): ClusterMetric {
  const samples = ({ status: { nodes } }: ClusterFigures): Sample[] =>
    nodes.map((node) => [{ node: idOf(node) }, value(node)]);
  return { name, help, labels: ['node'], samples };
}

/** A gauge of something that a process has once: main's own worker shares it with main, and is left out. */
function processGauge(name: string, help: string, value: (node: NodeStatus) => number): ClusterMetric {
  const samples = ({ status }: ClusterFigures): Sample[] =>
    status.nodes.filter((node) => !isOwnWorker(node, status)).map((node) => [{ node: idOf(node) }, value(node)]);
  return { name, help, labels: ['node'], samples };
}

function isOwnWorker(node: NodeStatus, { ownWorkerId }: StatusReply): boolean {
  return ownWorkerId !== '' && node.identity.id === ownWorkerId;
}

function workerGauge(name: string, help: string, value: (node: NodeStatus) => number): ClusterMetric {
  const samples = ({ status: { nodes } }: ClusterFigures): Sample[] =>
    nodes.filter(isWorker).map((node) => [{ node: idOf(node) }, value(node)]);
  return { name, help, labels: ['node'], samples };
}

/** `isOf`: selects the peers that are counted; left out: all. */
function nodeCounter(
  name: string,
  help: string,
  counter: PeerCounter,
  isOf: (node: NodeStatus) => boolean = () => true,
): ClusterMetric {
  const samples = (figures: ClusterFigures): Sample[] =>
    countsOf(figures, isOf).map(([node, counts]) => [{ node }, counts[counter]]);
  return { name, help, labels: ['node'], samples };
}

/** Counts of the selected peers, by id. */
function countsOf(
  { status: { nodes }, peerCounts }: ClusterFigures,
  isOf: (node: NodeStatus) => boolean,
): (readonly [node: string, counts: PeerCounts])[] {
  return nodes.filter(isOf).flatMap((node) => {
    const counts = peerCounts.get(idOf(node));
    return counts === undefined ? [] : [[idOf(node), counts] as const];
  });
}

/** Bytes that a node takes of its device, by their use; the scratch memory of workers is not known. */
function memoryKinds(node: NodeStatus, status: StatusReply): (readonly [kind: string, bytes: number])[] {
  const { deviceMemoryUsedBytes, deviceContextBytes: context, weightBytes: weights } = node;
  const { keyValueBytes, prefixBytes } = node;
  if (isOwnWorker(node, status)) return expertKinds(node);
  if (isWorker(node)) return [['context', context], ...expertKinds(node)];
  const ownWorker = isMain(node) ? status.nodes.find((other) => isOwnWorker(other, status)) : undefined;
  const experts = ownWorker === undefined ? 0 : expertKinds(ownWorker).reduce((sum, [, bytes]) => sum + bytes, 0);
  return [
    ['context', context],
    ['weights', weights],
    ['key_value_cache', keyValueBytes - prefixBytes],
    ['prefixes', prefixBytes],
    ['scratch', Math.max(0, deviceMemoryUsedBytes - context - weights - keyValueBytes - experts)],
  ];
}

function expertKinds({ slots, slotBytes, cache }: NodeStatus): (readonly [kind: string, bytes: number])[] {
  return [
    ['slots', slots * slotBytes],
    ['cache', cache?.bytes ?? 0],
  ];
}

function hopSamples(node: string, quantile: string, stages: HopStages): Sample[] {
  return Object.entries(HOP_LABELS).map(([name, stage]) => [
    { node, stage, quantile },
    stages[name as keyof HopStages] / 1000,
  ]);
}

function isMain({ identity }: NodeStatus): boolean {
  return identity.role === 'ROLE_MAIN';
}

function isWorker({ identity }: NodeStatus): boolean {
  return identity.role === 'ROLE_WORKER';
}

function isShadow({ identity }: NodeStatus): boolean {
  return identity.role === 'ROLE_SHADOW';
}

function idOf({ identity }: NodeStatus): string {
  return identity.id;
}
