import {
  atDialledAddress,
  emptyNodeStatus,
  ownNodeStatus,
  type ProcessFigures,
  type StatusDevice,
} from '../../shared/wire/node-status.js';
import type { NodeIdentity, NodeStatus } from '../../shared/wire/messages.js';

/** What is asked of the link to a peer. */
interface LinkedPeer {
  readonly id: string;
  readonly identity: NodeIdentity;
  readonly address: string;
  readonly status: NodeStatus | null;
}

interface OwnDevice {
  device: { info(): StatusDevice };
  deviceReason: string;
  weightBytes: number;
  weightFormat: string;
}

/** Of sequences, and of those that are kept. */
export interface RowBytes {
  keyValueBytes: number;
  prefixBytes: number;
}

interface Peers {
  readonly epoch: number;
  connectedWorkers(): LinkedPeer[];
  connectedShadows(): readonly LinkedPeer[];
}

/** main's own line of the status, then shadows', then workers' by id, each as it last told. */
export function nodeStatuses(
  own: NodeIdentity,
  { device, deviceReason, weightBytes, weightFormat }: OwnDevice,
  roster: Peers,
  figures: ProcessFigures,
  { keyValueBytes, prefixBytes }: RowBytes,
): NodeStatus[] {
  const main = {
    ...ownNodeStatus(own, figures, device.info(), deviceReason),
    epoch: roster.epoch,
    weightBytes,
    weightFormat,
    keyValueBytes,
    prefixBytes,
  };
  const workers = roster.connectedWorkers().sort((left, right) => (left.id < right.id ? -1 : 1));
  const peers = [...roster.connectedShadows(), ...workers];
  return [main, ...peers.map((link) => atDialledAddress(link.status ?? emptyNodeStatus(link.identity), link.address))];
}
