import type { DeviceInfo } from '../../native/index.js';
import { ownNodeStatus, type ProcessFigures } from '../../shared/wire/node-status.js';
import type { NodeIdentity, NodeStatus } from '../../shared/wire/messages.js';
import type { PredictorCounts } from '../predictor/predictor.js';
import type { WorkerLinkCounts } from './worker-links.js';

/** The shadow's status for `odmoe status`; fields that only workers have are 0. */
export function shadowStatus(input: {
  identity: NodeIdentity;
  epoch: number;
  figures: ProcessFigures;
  device: DeviceInfo;
  deviceReason: string;
  weightBytes: number;
  /** The form that `shadow.precision: auto` chose, and why; empty: the settings named one. */
  weightFormat: string;
  keyValueBytes: number;
  predictor: PredictorCounts;
  workers: WorkerLinkCounts;
}): NodeStatus {
  const { device, predictor, workers } = input;
  return {
    ...ownNodeStatus(input.identity, input.figures, device, input.deviceReason),
    epoch: input.epoch,
    weightBytes: input.weightBytes,
    weightFormat: input.weightFormat,
    keyValueBytes: input.keyValueBytes,
    prefixBytes: predictor.prefixBytes,
    staleMessages: workers.stale,
    droppedPredictions: workers.dropped,
    predictedPositions: predictor.predictedPositions,
    alignedTokens: predictor.alignedTokens,
    alignedKvRows: predictor.alignedRows,
  };
}
