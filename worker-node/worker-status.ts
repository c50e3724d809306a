import type { Device } from '../native/index.js';
import type { NodeIdentity, NodeStatus } from '../shared/rpc/index.js';
import type { ExpertService } from './executor/expert-service.js';
import type { WorkerSessions } from './rpc/worker-sessions.js';

/** The worker's line of `odmoe status`. */
export function workerStatus(
  identity: NodeIdentity,
  uptimeMs: number,
  device: Device,
  experts: ExpertService,
  sessions: WorkerSessions,
): NodeStatus {
  const memory = device.info();
  const { droppedPredictions, ...counters } = experts.counters;
  const { epoch, staleMessages, droppedPredictions: droppedEarly } = sessions.counters;
  return {
    identity,
    epoch,
    uptimeMs,
    residentMemoryBytes: process.memoryUsage.rss(),
    deviceMemoryUsedBytes: memory.usedBytes,
    deviceMemoryHighWaterBytes: memory.highWaterBytes,
    deviceMemoryBudgetBytes: memory.budgetBytes,
    ...counters,
    staleMessages,
    droppedPredictions: droppedPredictions + droppedEarly,
    predictedPositions: 0,
    alignedTokens: 0,
    alignedKvRows: 0,
  };
}
