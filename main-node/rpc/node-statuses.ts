import {
  atDialledAddress,
  emptyNodeStatus,
  ownNodeStatus,
  type NodeIdentity,
  type NodeStatus,
} from '../../shared/rpc/index.js';

/** What is asked of the link to a peer. */
interface LinkedPeer {
  readonly id: string;
  readonly identity: NodeIdentity;
  readonly address: string;
  readonly status: NodeStatus | null;
}

interface StatusDevice {
  info(): { usedBytes: number; highWaterBytes: number; budgetBytes: number };
}

interface Peers {
  readonly epoch: number;
  connectedWorkers(): LinkedPeer[];
  connectedShadows(): readonly LinkedPeer[];
}

/** main's own line of the status, then shadows', then workers' by id, each as it last told. */
export function nodeStatuses(own: NodeIdentity, device: StatusDevice, roster: Peers, startedMs: number): NodeStatus[] {
  const main = { ...ownNodeStatus(own, performance.now() - startedMs, device.info()), epoch: roster.epoch };
  const workers = roster.connectedWorkers().sort((left, right) => (left.id < right.id ? -1 : 1));
  const peers = [...roster.connectedShadows(), ...workers];
  return [main, ...peers.map((link) => atDialledAddress(link.status ?? emptyNodeStatus(link.identity), link.address))];
}
