import type { MemoryView, NodeRole, NodeView } from '../../shared/wire/cluster-events.js';
import { atDialledAddress, emptyNodeStatus } from '../../shared/wire/node-status.js';
import { type DrainState, othersLackBytes } from '../../shared/decisions/draining/drain-state.js';
import type { DrainedNode, NodeStatus, RoleName, StatusReply } from '../../shared/wire/messages.js';
import type { LostNode } from './lost-nodes.js';

const ROLES: Readonly<Record<RoleName, NodeRole>> = {
  ROLE_MAIN: 'main',
  ROLE_SHADOW: 'shadow',
  ROLE_WORKER: 'worker',
  ROLE_UNSPECIFIED: 'worker',
};

/** Describes a node that main is connected with, or main itself. */
export function presentNode(
  node: NodeStatus,
  { nodes, placement, drained = [], links, workerWaits, workerHops, ownWorkerId }: StatusReply,
): NodeView {
  const { id } = node.identity;
  const group = placement?.groups.findIndex(({ workerIds }) => workerIds.includes(id)) ?? -1;
  const link = links.find(({ peer }) => peer === id);
  const hops = workerHops?.find(({ worker }) => worker === id);
  const drain = drained.find((each) => each.id === id);
  const waits = workerWaits.find(({ worker }) => worker === id);
  return {
    ...factsOf(node),
    state: stateOf(node, drain),
    othersLackBytes: drain === undefined ? 0 : (othersLackBytes(nodes, drain) ?? 0),
    isOnMain: id === ownWorkerId,
    reason: '',
    group: group < 0 ? null : group,
    link:
      link === undefined
        ? null
        : { roundTripMs: link.roundTripMs, sentBytes: link.sentBytes, receivedBytes: link.receivedBytes },
    waits:
      waits === undefined
        ? null
        : {
            waitMs: waits.waitMs,
            stallMs: waits.stallMs,
            executeMs: waits.executeMs,
            otherMs: waits.otherMs,
            lastShare: waits.lastShare,
          },
    hops: hops === undefined ? null : { median: hops.median, p99: hops.p99 },
  };
}

function stateOf(node: NodeStatus, drain: DrainedNode | undefined): NodeView['state'] {
  if (drain !== undefined) return drain.state === ('may go' satisfies DrainState) ? 'mayGo' : 'draining';
  return isFetching(node) ? 'fetching' : 'up';
}

/** Describes a node as it was when it was lost. */
export function lostNode({ identity, address, status, reason }: LostNode): NodeView {
  const facts = factsOf(atDialledAddress(status ?? emptyNodeStatus(identity), address));
  return {
    ...facts,
    state: 'lost',
    othersLackBytes: 0,
    isOnMain: false,
    reason,
    group: null,
    link: null,
    waits: null,
    hops: null,
  };
}

type Facts = Omit<NodeView, 'state' | 'othersLackBytes' | 'isOnMain' | 'reason' | 'group' | 'link' | 'waits' | 'hops'>;

/** The facts that a node has reported about itself. */
function factsOf(node: NodeStatus): Facts {
  const { identity, deviceName, fetchNeededBytes } = node;
  const role = ROLES[identity.role];
  const isFetcher = fetchNeededBytes > 0 || node.fetchProblem !== '';
  return {
    id: identity.id,
    role,
    release: identity.release,
    address: identity.address,
    device: deviceName === '' ? identity.device : `${identity.device} (${deviceName})`,
    deviceReason: node.deviceReason,
    uptimeMs: node.uptimeMs,
    memory: memoryOf(node, role),
    slots: role === 'worker' ? { count: node.slots, inUse: node.slotsInUse } : null,
    loads: node.loads,
    reloads: node.reloads,
    loadMsMean: node.loadMsMean,
    executeMsMean: node.executeMsMean,
    storageReadBytes: node.storageReadBytes,
    fetch: isFetcher
      ? {
          heldBytes: node.fetchHeldBytes,
          neededBytes: fetchNeededBytes,
          receivedBytes: node.fetchReceivedBytes,
          problem: node.fetchProblem,
        }
      : null,
  };
}

function isFetching({ fetchNeededBytes, fetchHeldBytes, fetchProblem }: NodeStatus): boolean {
  return fetchHeldBytes < fetchNeededBytes || fetchProblem !== '';
}

function memoryOf(node: NodeStatus, role: NodeRole): MemoryView {
  const used = node.deviceMemoryUsedBytes;
  const slotBytes = role === 'worker' ? node.slots * node.slotBytes : 0;
  const cacheBytes = node.cache?.bytes ?? 0;
  const { keyValueBytes, prefixBytes } = node;
  const knownBytes = node.deviceContextBytes + node.weightBytes + keyValueBytes + slotBytes + cacheBytes;
  return {
    contextBytes: node.deviceContextBytes,
    weightBytes: node.weightBytes,
    keyValueBytes,
    prefixBytes,
    slotBytes,
    cacheBytes,
    otherBytes: Math.max(0, used - knownBytes),
    usedBytes: used,
    highWaterBytes: node.deviceMemoryHighWaterBytes,
    budgetBytes: node.deviceMemoryBudgetBytes,
    residentBytes: node.residentMemoryBytes,
  };
}
