import type { CacheStatus, NodeStatus, StatusReply } from '../../shared/wire/messages.js';
import { hopLines } from './hop-report.js';
import { shortRole } from './node-json.js';
import { tableLines, type TableColumn } from './table.js';
import { formatBytes, formatDuration } from '../../shared/base/text/units.js';
import { POOLS, type Pool } from '../../shared/settings/cache-policies.js';
import { countInParts } from '../../shared/decisions/caching/pool-capacities.js';

/** An earlier status and the time since then, for rates. */
export interface EarlierStatus {
  status: StatusReply;
  elapsedMs: number;
}

const ROSTER_COLUMNS: readonly TableColumn[] = [
  { title: 'node', align: 'left' },
  { title: 'role', align: 'left' },
  { title: 'address', align: 'left' },
  { title: 'up', align: 'right' },
  { title: 'device memory', align: 'right' },
  { title: 'peak', align: 'right' },
  { title: 'budget', align: 'right' },
  { title: 'process', align: 'right' },
  { title: 'round trip', align: 'right' },
  { title: 'device', align: 'left' },
  { title: 'odmoe', align: 'left' },
];

const WORKER_COLUMNS: readonly TableColumn[] = [
  { title: 'worker', align: 'left' },
  { title: 'slots', align: 'right' },
  { title: 'slot size', align: 'right' },
  { title: 'loads', align: 'right' },
  { title: 'reloads', align: 'right' },
  { title: 'evictions', align: 'right' },
  { title: 'executions', align: 'right' },
  { title: 'read', align: 'right' },
  { title: 'load', align: 'right' },
  { title: 'execute', align: 'right' },
];

const CACHE_COLUMNS: readonly TableColumn[] = [
  { title: 'cache', align: 'left' },
  { title: 'policy', align: 'left' },
  { title: 'size', align: 'right' },
  { title: 'full', align: 'right' },
  { title: 'compressed', align: 'right' },
  { title: 'sign-mantissa', align: 'right' },
  { title: 'exponent', align: 'right' },
  { title: 'as fixed4', align: 'right' },
  { title: 'full hits', align: 'right' },
  { title: 'partial hits', align: 'right' },
  { title: 'misses', align: 'right' },
];

const HOST_MEMORY_COLUMNS: readonly TableColumn[] = [
  { title: 'host memory', align: 'left' },
  { title: 'held', align: 'right' },
  { title: 'budget', align: 'right' },
  { title: 'experts', align: 'right' },
  { title: 'loads from there', align: 'right' },
  { title: 'bytes', align: 'right' },
  { title: 'filled', align: 'right' },
];

const RATE_COLUMNS: readonly TableColumn[] = [
  { title: 'loads/s', align: 'right' },
  { title: 'executions/s', align: 'right' },
  { title: 'read/s', align: 'right' },
];

/** All tables: devices, memory, workers, caches, links and placement. With an earlier status: rates since then. */
export function detailLines(status: StatusReply, earlier: EarlierStatus | null): string[] {
  return [
    '',
    ...tableLines(
      ROSTER_COLUMNS,
      status.nodes.map((node) => rosterRow(node, status)),
    ),
    ...weightLines(status.nodes),
    ...rowLines(status.nodes),
    ...deviceLines(status.nodes),
    ...workerLines(status, earlier),
    ...hopLines(status),
    ...cacheLines(status.nodes),
    ...hostMemoryLines(status.nodes),
    ...shadowLines(status.nodes),
    ...placementLines(status),
  ];
}

/** Between main and the node; 0: none was measured. */
export function roundTripTo({ identity }: NodeStatus, links: StatusReply['links']): number {
  return links.find(({ peer }) => peer === identity.id)?.roundTripMs ?? 0;
}

function rosterRow(node: NodeStatus, { links, ownWorkerId }: StatusReply): string[] {
  const { identity } = node;
  const isOnMain = identity.id === ownWorkerId;
  const roundTripMs = roundTripTo(node, links);
  return [
    identity.id,
    isOnMain ? `${shortRole(identity.role)} on main` : shortRole(identity.role),
    identity.address,
    formatDuration(node.uptimeMs),
    ...(isOnMain ? MEMORY_OF_MAIN : memoryCells(node)),
    roundTripMs === 0 ? '' : `${roundTripMs.toFixed(2)} ms`,
    identity.device,
    identity.release,
  ];
}

/** Empty cells: main's own row has the memory. */
const MEMORY_OF_MAIN: readonly string[] = ['', '', '', ''];

function memoryCells(node: NodeStatus): string[] {
  return [
    formatBytes(node.deviceMemoryUsedBytes),
    formatBytes(node.deviceMemoryHighWaterBytes),
    node.deviceMemoryBudgetBytes === 0 ? 'none' : formatBytes(node.deviceMemoryBudgetBytes),
    formatBytes(node.residentMemoryBytes),
  ];
}

/** Bytes of main's own weights, and their form; of shadow's if it chose the form itself. */
function weightLines(nodes: readonly NodeStatus[]): string[] {
  const withWeights = nodes.filter(({ weightFormat }) => weightFormat !== '');
  if (withWeights.length === 0) return [];
  const weights = withWeights.map(({ identity, weightBytes, weightFormat }) => {
    return `${identity.id} ${formatBytes(weightBytes)} as ${weightFormat}`;
  });
  return ['', `weights: ${weights.join('; ')}`];
}

/** Memory for the rows of sequences, if a node has any. */
function rowLines(nodes: readonly NodeStatus[]): string[] {
  const holders = nodes.filter(({ keyValueBytes }) => keyValueBytes > 0);
  if (holders.length === 0) return [];
  const held = holders.map(({ identity, keyValueBytes, prefixBytes }) => {
    const retained =
      prefixBytes === 0 ? '' : `, of which ${formatBytes(prefixBytes)} are retained for prompts that begin alike`;
    return `${identity.id} ${formatBytes(keyValueBytes)}${retained}`;
  });
  return ['', `rows of sequences: ${held.join('; ')}`];
}

const DEVICE_COLUMNS: readonly TableColumn[] = [
  { title: 'on', align: 'left' },
  { title: 'GPU', align: 'left' },
  { title: 'context', align: 'right' },
  { title: "driver's own figure", align: 'right' },
  { title: 'why', align: 'left' },
];

/** The device of each node with the reason, if some node uses a GPU. */
function deviceLines(nodes: readonly NodeStatus[]): string[] {
  if (nodes.every(({ deviceName }) => deviceName === '')) return [];
  return ['', ...tableLines(DEVICE_COLUMNS, nodes.map(deviceRow))];
}

function deviceRow(node: NodeStatus): string[] {
  const { identity, deviceName, deviceReason, deviceContextBytes, deviceDriverUsedBytes } = node;
  const onGpu = deviceName !== '';
  return [
    identity.id,
    onGpu ? deviceName : 'none',
    onGpu ? formatBytes(deviceContextBytes) : '',
    deviceDriverUsedBytes === null ? '' : formatBytes(deviceDriverUsedBytes),
    deviceReason,
  ];
}

function workerLines(status: StatusReply, earlier: EarlierStatus | null): string[] {
  const workers = status.nodes.filter((node) => node.identity.role === 'ROLE_WORKER');
  if (workers.length === 0) return ['', 'no worker is connected'];
  const columns = earlier === null ? WORKER_COLUMNS : [...WORKER_COLUMNS, ...RATE_COLUMNS];
  const rows = workers.map((node) =>
    earlier === null ? workerRow(node) : [...workerRow(node), ...rateRow(node, earlier)],
  );
  return ['', ...tableLines(columns, rows)];
}

function workerRow(node: NodeStatus): string[] {
  return [
    node.identity.id,
    `${node.slotsInUse}/${node.slots}`,
    formatBytes(node.slotBytes),
    String(node.loads),
    String(node.reloads),
    String(node.evictions),
    String(node.executions),
    formatBytes(node.storageReadBytes),
    `${node.loadMsMean.toFixed(2)} ms`,
    `${node.executeMsMean.toFixed(2)} ms`,
  ];
}

function cacheLines(nodes: readonly NodeStatus[]): string[] {
  const rows = nodes.flatMap(({ identity, cache }) => (cache === null ? [] : [[identity.id, ...cacheRow(cache)]]));
  return rows.length === 0 ? [] : ['', ...tableLines(CACHE_COLUMNS, rows)];
}

/** Host memory of workers, if some use it (worker.host_memory). */
function hostMemoryLines(nodes: readonly NodeStatus[]): string[] {
  const rows = nodes.flatMap(({ identity, hostMemory }) => {
    if (hostMemory === null) return [];
    const { budgetBytes, heldBytes, experts, loads, loadedBytes, filledBytes } = hostMemory;
    const sizes = [heldBytes, budgetBytes].map(formatBytes);
    return [[identity.id, ...sizes, String(experts), String(loads), ...[loadedBytes, filledBytes].map(formatBytes)]];
  });
  return rows.length === 0 ? [] : ['', ...tableLines(HOST_MEMORY_COLUMNS, rows)];
}

function cacheRow({ policy, bytes, capacities, kept, packed, hits, misses }: CacheStatus): string[] {
  const held = (pool: Pool): string => `${kept[pool]}/${capacities[pool]}`;
  return [
    policy,
    formatBytes(bytes),
    ...POOLS.map(held),
    ...[packed, hits.full, countInParts(hits), misses].map(String),
  ];
}

/** A worker that is new or was restarted has counted from zero. */
function rateRow(node: NodeStatus, { status, elapsedMs }: EarlierStatus): string[] {
  const before = status.nodes.find((earlier) => earlier.identity.bootId === node.identity.bootId) ?? null;
  const rate = (count: (status: NodeStatus) => number): number =>
    ((count(node) - (before === null ? 0 : count(before))) * 1000) / elapsedMs;
  return [
    rate((worker) => worker.loads).toFixed(1),
    rate((worker) => worker.executions).toFixed(1),
    formatBytes(rate((worker) => worker.storageReadBytes)),
  ];
}

/** Workers that are still fetching their experts. */
export function fetchLines({ nodes, placement }: StatusReply): string[] {
  const placed = new Set(placement?.workers.map(({ id }) => id));
  const lines = nodes
    .filter(({ fetchNeededBytes, fetchHeldBytes, fetchProblem }) => fetchHeldBytes < fetchNeededBytes || fetchProblem)
    .map(({ identity, fetchNeededBytes, fetchHeldBytes, fetchProblem }) => {
      const percent = fetchNeededBytes === 0 ? 100 : Math.floor((100 * fetchHeldBytes) / fetchNeededBytes);
      const done = `${formatBytes(fetchHeldBytes)} of ${formatBytes(fetchNeededBytes)} (${percent} %)`;
      const waits = placed.has(identity.id) ? '' : ', not placed yet';
      return `  ${identity.id}: ${done}${waits}${fetchProblem === '' ? '' : `; held up: ${fetchProblem}`}`;
    });
  return lines.length === 0 ? [] : ['', 'fetching experts:', ...lines];
}

function shadowLines(nodes: readonly NodeStatus[]): string[] {
  const shadow = nodes.find((node) => node.identity.role === 'ROLE_SHADOW');
  if (shadow === undefined) return ['', 'no shadow is connected: experts are loaded without prediction'];
  const { predictedPositions, alignedTokens, alignedKvRows } = shadow;
  return [
    '',
    `shadow: predicted ${predictedPositions} positions, aligned ${alignedTokens} tokens and ${alignedKvRows} KV rows`,
  ];
}

function placementLines({ placement, groupReason }: StatusReply): string[] {
  if (placement === null || placement.groups.length === 0) return [];
  const { epoch, groups, layers } = placement;
  const lines = groups.map((group, index) => {
    return `  group ${index}: ${group.workerIds.join(', ')}  (${layersOfGroup(index, groups.length, layers)})`;
  });
  return ['', `placement ${epoch}:`, ...lines, ...(groupReason === '' ? [] : [`  group size: ${groupReason}`])];
}

function layersOfGroup(group: number, groups: number, layers: number): string {
  const served = Array.from({ length: layers }, (_, layer) => layer).filter((layer) => layer % groups === group);
  const shown = served.slice(0, 4).join(', ');
  const more = served.length > 4 ? `, ... ${served[served.length - 1] ?? ''}` : '';
  return `${served.length === 1 ? 'layer' : 'layers'} ${shown}${more}`;
}

export function perSecond(count: number, elapsedMs: number): string {
  return ((count * 1000) / elapsedMs).toFixed(1);
}
