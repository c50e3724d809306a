import type { NodeDevice } from '../engine/devices/open-node-device.js';
import { ownNodeStatus, type ProcessFigures } from '../shared/wire/node-status.js';
import type { NodeIdentity, NodeStatus } from '../shared/wire/messages.js';
import type { ExpertService } from './executor/expert-service.js';
import type { WorkerSessions } from './rpc/worker-sessions.js';

/** The worker's line of `odmoe status`. */
export function workerStatus(
  identity: NodeIdentity,
  figures: ProcessFigures,
  { device, reason }: Pick<NodeDevice, 'device' | 'reason'>,
  experts: ExpertService,
  sessions: WorkerSessions,
  supply: { readonly status: Partial<NodeStatus> },
): NodeStatus {
  const { droppedPredictions, ...counters } = experts.counters;
  const { epoch, staleMessages, droppedPredictions: droppedEarly } = sessions.counters;
  return {
    ...ownNodeStatus(identity, figures, device.info(), reason),
    ...counters,
    ...supply.status,
    epoch,
    staleMessages,
    droppedPredictions: droppedPredictions + droppedEarly,
  };
}
