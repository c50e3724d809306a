import {
  atDialledAddress,
  emptyNodeStatus,
  ownNodeStatus,
  type ProcessFigures,
  type StatusDevice,
} from '../../shared/wire/node-status.js';
import type { NodeIdentity, NodeStatus } from '../../shared/wire/messages.js';

/** The parts of a link to a peer that the status needs. */
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

/** Bytes of the rows of all sequences and prefixes, and of retained prefixes alone. */
export interface RowBytes {
  keyValueBytes: number;
  prefixBytes: number;
}

interface Peers {
  readonly epoch: number;
  connectedWorkers(): LinkedPeer[];
  connectedShadows(): readonly LinkedPeer[];
}

/** Main's own status, then those of shadows, then those of workers by id, each as it was last sent. */
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
