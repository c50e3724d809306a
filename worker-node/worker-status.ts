import type { Device } from '../native/index.js';
import { ownNodeStatus, type NodeIdentity, type NodeStatus } from '../shared/rpc/index.js';
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
  const { droppedPredictions, ...counters } = experts.counters;
  const { epoch, staleMessages, droppedPredictions: droppedEarly } = sessions.counters;
  return {
    ...ownNodeStatus(identity, uptimeMs, device.info()),
    ...counters,
    epoch,
    staleMessages,
    droppedPredictions: droppedPredictions + droppedEarly,
  };
}
