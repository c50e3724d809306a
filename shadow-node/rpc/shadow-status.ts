import type { DeviceInfo } from '../../native/index.js';
import type { NodeIdentity, NodeStatus } from '../../shared/rpc/messages.js';
import type { PredictorCounts } from '../predictor/predictor.js';
import type { WorkerLinkCounts } from './worker-links.js';

/** The shadow's line of `odmoe status`; what only workers have is 0. */
export function shadowStatus(input: {
  identity: NodeIdentity;
  epoch: number;
  uptimeMs: number;
  residentMemoryBytes: number;
  device: DeviceInfo;
  predictor: PredictorCounts;
  workers: WorkerLinkCounts;
}): NodeStatus {
  const { device, predictor, workers } = input;
  return {
    identity: input.identity,
    epoch: input.epoch,
    uptimeMs: Math.round(input.uptimeMs),
    residentMemoryBytes: input.residentMemoryBytes,
    deviceMemoryUsedBytes: device.usedBytes,
    deviceMemoryHighWaterBytes: device.highWaterBytes,
    deviceMemoryBudgetBytes: device.budgetBytes,
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
    staleMessages: workers.stale,
    latePredictions: 0,
    droppedPredictions: workers.dropped,
    predictedPositions: predictor.predictedPositions,
    alignedTokens: predictor.alignedTokens,
    alignedKvRows: predictor.alignedKeyValueRows,
  };
}
