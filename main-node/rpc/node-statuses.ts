import type { Device } from '../../native/index.js';
import type { NodeIdentity, NodeStatus } from '../../shared/rpc/messages.js';
import type { Roster } from '../cluster/roster.js';

/** main's own line of the status, then shadows', then workers' by id, each as it last told. */
export function nodeStatuses(own: NodeIdentity, device: Device, roster: Roster, startedMs: number): NodeStatus[] {
  const { usedBytes, highWaterBytes, budgetBytes } = device.info();
  const main: NodeStatus = {
    ...emptyStatus(own),
    epoch: roster.epoch,
    uptimeMs: Math.round(performance.now() - startedMs),
    residentMemoryBytes: process.memoryUsage.rss(),
    deviceMemoryUsedBytes: usedBytes,
    deviceMemoryHighWaterBytes: highWaterBytes,
    deviceMemoryBudgetBytes: budgetBytes,
  };
  const workers = roster.connectedWorkers().sort((left, right) => (left.id < right.id ? -1 : 1));
  const peers = [...roster.connectedShadows(), ...workers];
  return [main, ...peers.map((link) => link.status ?? emptyStatus(link.identity))];
}

function emptyStatus(identity: NodeIdentity): NodeStatus {
  return {
    identity,
    epoch: 0,
    uptimeMs: 0,
    residentMemoryBytes: 0,
    deviceMemoryUsedBytes: 0,
    deviceMemoryHighWaterBytes: 0,
    deviceMemoryBudgetBytes: 0,
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
  };
}
