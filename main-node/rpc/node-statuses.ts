import type { Device } from '../../native/index.js';
import { emptyNodeStatus, ownNodeStatus, type NodeIdentity, type NodeStatus } from '../../shared/rpc/index.js';
import type { Roster } from '../cluster/roster.js';

/** main's own line of the status, then shadows', then workers' by id, each as it last told. */
export function nodeStatuses(own: NodeIdentity, device: Device, roster: Roster, startedMs: number): NodeStatus[] {
  const main = { ...ownNodeStatus(own, performance.now() - startedMs, device.info()), epoch: roster.epoch };
  const workers = roster.connectedWorkers().sort((left, right) => (left.id < right.id ? -1 : 1));
  const peers = [...roster.connectedShadows(), ...workers];
  return [main, ...peers.map((link) => link.status ?? emptyNodeStatus(link.identity))];
}
