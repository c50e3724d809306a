import type { NodeDevice } from '../engine/devices/index.js';
import { ownNodeStatus, type NodeIdentity, type NodeStatus, type ProcessFigures } from '../shared/rpc/index.js';
import type { PackFetch } from './fetching/pack-fetch.js';
import type { ExpertService } from './executor/expert-service.js';
import type { WorkerSessions } from './rpc/worker-sessions.js';

/** The worker's line of `odmoe status`. */
export function workerStatus(
  identity: NodeIdentity,
  figures: ProcessFigures,
  { device, reason }: Pick<NodeDevice, 'device' | 'reason'>,
  experts: ExpertService,
  sessions: WorkerSessions,
  fetch: PackFetch | null,
): NodeStatus {
  const { droppedPredictions, ...counters } = experts.counters;
  const { epoch, staleMessages, droppedPredictions: droppedEarly } = sessions.counters;
  return {
    ...ownNodeStatus(identity, figures, device.info(), reason),
    ...counters,
    ...fetch?.status,
    epoch,
    staleMessages,
    droppedPredictions: droppedPredictions + droppedEarly,
  };
}
