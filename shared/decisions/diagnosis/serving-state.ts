import type { StatusReply } from '../../wire/messages.js';
import { fetchProgress } from './cluster-problems.js';

/** Whether a cluster answers prompts. `reason`: why it does not; empty if it does. */
export interface ServingState {
  readonly serves: boolean;
  readonly reason: string;
}

/** Judged by main's status: a cluster serves when workers have all experts. Pure. */
export function servingState({
  nodes,
  placement,
  problems,
}: Pick<StatusReply, 'nodes' | 'placement' | 'problems'>): ServingState {
  if (placement !== null && placement.groups.length > 0) return { serves: true, reason: '' };
  const workers = nodes.filter(({ identity }) => identity.role === 'ROLE_WORKER');
  const fetching = workers.find(({ fetchHeldBytes, fetchNeededBytes }) => fetchHeldBytes < fetchNeededBytes);
  if (fetching !== undefined)
    return { serves: false, reason: `no worker has its experts yet: ${fetchProgress(fetching)}` };
  if (workers.length > 0) return { serves: false, reason: 'no worker is used yet' };
  const count = problems.length === 1 ? '1 problem below says' : `${problems.length} problems below say`;
  return {
    serves: false,
    reason: `no worker is connected${problems.length === 0 ? ': start one (odmoe worker)' : `; ${count} why`}`,
  };
}
