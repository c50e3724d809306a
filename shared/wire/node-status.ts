import { hostOf, isWildcardHost } from './addresses.js';
import type { NodeIdentity, NodeStatus } from './messages.js';

/** How often shadow and workers tell main their status, beside the moments that call for it. */
export const STATUS_INTERVAL_MS = 1000;

/** What is known of a daemon that has told nothing of itself yet. */
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
    keyValueBytes: 0,
    prefixBytes: 0,
    hostMemory: null,
  };
}

/** With the address that the daemon was reached at, where it cannot know its own. */
export function atDialledAddress(status: NodeStatus, dialled: string): NodeStatus {
  const { identity } = status;
  return isWildcardHost(hostOf(identity.address)) ? { ...status, identity: { ...identity, address: dialled } } : status;
}

/** What a device tells of itself, as far as a status has it. */
export interface StatusDevice {
  usedBytes: number;
  highWaterBytes: number;
  budgetBytes: number;
  name: string;
  contextBytes: number;
  driverUsedBytes: number | null;
}

/** What a process tells of itself. */
export interface ProcessFigures {
  uptimeMs: number;
  memoryBytes: number;
}

/** This process's status as far as every role has it; what only one role counts is 0. */
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
