import type { ClusterData } from '../../shared/wire/cluster-events.js';
import { clusterProblems } from '../../shared/decisions/diagnosis/cluster-problems.js';
import { isLoopbackHost } from '../../shared/transport/credentials.js';
import { dialAddress, hostOf } from '../../shared/wire/addresses.js';
import type { NodeIdentity, StatusReply } from '../../shared/wire/messages.js';
import type { LostNode } from './lost-nodes.js';
import { lostNode, presentNode } from './node-view.js';

/** What does not change while main runs. */
export interface ServedCluster {
  model: ClusterData['model'];
  expertLayers: number;
  experts: number;
  expertsPerToken: number;
  /** Each expert has workers of its own, so that workers keep what is theirs. */
  strictHomes: boolean;
  /** By which other boxes may reach this machine, where main listens on every interface. */
  machineAddress: string;
}

/** What changes. `status.problems` tells of those that are lost. */
export interface ClusterMoment {
  atMs: number;
  status: StatusReply;
  lost: readonly LostNode[];
}

/** The whole cluster as main knows it. `status.nodes` begins with main. */
export function clusterView(served: ServedCluster, { atMs, status, lost }: ClusterMoment): ClusterData {
  const own = status.nodes.find(({ identity }) => identity.role === 'ROLE_MAIN')?.identity;
  return {
    atMs,
    name: own?.cluster ?? '',
    release: own?.release ?? '',
    model: served.model,
    expertLayers: served.expertLayers,
    experts: served.experts,
    expertsPerToken: served.expertsPerToken,
    nodes: [...status.nodes.map((node) => presentNode(node, status)), ...lost.map(lostNode)],
    groups: status.placement?.groups.map(({ workerIds }) => [...workerIds]) ?? [],
    groupReason: status.groupReason,
    activeRequests: status.activeSequences,
    queuedRequests: status.queuedRequests,
    problems: clusterProblems(status),
    joinCommand: own === undefined ? '' : joinCommand(own, served),
    isThisMachineOnly: own !== undefined && isLoopbackHost(hostOf(own.address)),
  };
}

/** What makes another box a worker: it needs nothing but main's address, and fetches what it is going to run. */
export function joinCommand(
  { address, cluster }: Pick<NodeIdentity, 'address' | 'cluster'>,
  { strictHomes, machineAddress }: Pick<ServedCluster, 'strictHomes' | 'machineAddress'>,
): string {
  const reachable = dialAddress(address, machineAddress);
  const words = ['odmoe', 'worker', '--main', shellWord(reachable), '--cluster', shellWord(cluster)];
  if (strictHomes) words.push('--homes', 'strict');
  // Where only this machine can reach main, others of its workers are on it, too, and have the usual port.
  if (isLoopbackHost(hostOf(reachable))) words.push('--port', '0');
  return words.join(' ');
}

function shellWord(text: string): string {
  return /^[\w.:@%+,/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
