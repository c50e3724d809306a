import { dialAddress, hostOf, isWildcardHost } from './addresses.js';
import type { NodeIdentity, NodeStatus } from './messages.js';

/** Interval at which shadow and workers send main their status. Some events send it in between. */
export const STATUS_INTERVAL_MS = 1000;

/** Status of a daemon that has not reported yet. */
export function emptyNodeStatus(identity: NodeIdentity): NodeStatus {
  return {
    identity,
    epoch: 0,
    uptimeMs: 0,
    residentMemoryBytes: 0,
    deviceMemoryUsedBytes: 0,
    deviceMemoryHighWaterBytes: 0,
    deviceMemoryBudgetBytes: 0,
    deviceName: '',
    deviceReason: '',
    deviceContextBytes: 0,
    deviceDriverUsedBytes: null,
    weightBytes: 0,
    weightFormat: '',
    slots: 0,
    slotsInUse: 0,
    slotBytes: 0,
    loads: 0,
    reloads: 0,
    evictions: 0,
    executions: 0,
    storageReadBytes: 0,
    loadMsMean: 0,
    executeMsMean: 0,
    shortExecuteMsMean: 0,
    staleMessages: 0,
    latePredictions: 0,
    droppedPredictions: 0,
    predictedPositions: 0,
    alignedTokens: 0,
    alignedKvRows: 0,
    cache: null,
    fetchNeededBytes: 0,
    fetchHeldBytes: 0,
    fetchReceivedBytes: 0,
    fetchReadyFor: 0,
    fetchProblem: '',
    damagedExperts: 0,
    servesDraftHead: false,
    headLoads: 0,
    keyValueBytes: 0,
    prefixBytes: 0,
    hostMemory: null,
  };
}

/** The status with the address at which the daemon was dialled, if the daemon cannot know its address. */
export function atDialledAddress(status: NodeStatus, dialled: string): NodeStatus {
  const { identity } = status;
  return isWildcardHost(hostOf(identity.address)) ? { ...status, identity: { ...identity, address: dialled } } : status;
}

/** The status with `host` in its address, if the daemon listens on every interface and names none of them. */
export function atHost(status: NodeStatus, host: string): NodeStatus {
  return atDialledAddress(status, dialAddress(status.identity.address, host));
}

/** Values of a device that a status contains. */
export interface StatusDevice {
  usedBytes: number;
  highWaterBytes: number;
  budgetBytes: number;
  name: string;
  contextBytes: number;
  driverUsedBytes: number | null;
}

/** Values of a process that a status contains. */
export interface ProcessFigures {
  uptimeMs: number;
  memoryBytes: number;
}

/** This process's status, with the fields that every role has. Counts of single roles are 0. */
export function ownNodeStatus(
  identity: NodeIdentity,
  { uptimeMs, memoryBytes }: ProcessFigures,
  device: StatusDevice,
  deviceReason: string,
): NodeStatus {
  return {
    ...emptyNodeStatus(identity),
    uptimeMs: Math.round(uptimeMs),
    residentMemoryBytes: memoryBytes,
    deviceMemoryUsedBytes: device.usedBytes,
    deviceMemoryHighWaterBytes: device.highWaterBytes,
    deviceMemoryBudgetBytes: device.budgetBytes,
    deviceName: device.name,
    deviceReason,
    deviceContextBytes: device.contextBytes,
    deviceDriverUsedBytes: device.driverUsedBytes,
  };
}

/**
 * The status with an identity as its node has stated it: a decoded identity has empty texts for what was left out, and release 0.2 cannot skip a text that
 * it does not know, not even an empty one.
 */
export function withoutUnstated({ identity, ...counters }: NodeStatus): NodeStatus {
  const { quality, slicesDigest, ...stated } = identity;
  const sliced = quality === undefined || quality === '' ? {} : { quality };
  const digest = slicesDigest === undefined || slicesDigest === '' ? {} : { slicesDigest };
  return { identity: { ...stated, ...sliced, ...digest }, ...counters };
}
