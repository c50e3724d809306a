import type { ClusterData } from '../../shared/wire/cluster-events.js';
import { shellWord } from '../../shared/base/text/shell-word.js';
import { clusterProblems } from '../../shared/decisions/diagnosis/cluster-problems.js';
import { isLoopbackHost } from '../../shared/transport/credentials.js';
import { dialAddress, hostOf } from '../../shared/wire/addresses.js';
import { atHost } from '../../shared/wire/node-status.js';
import type { NodeIdentity, StatusReply } from '../../shared/wire/messages.js';
import type { LostNode } from './lost-nodes.js';
import { lostNode, presentNode } from './node-view.js';

/** The facts of the cluster that do not change while main runs. */
export interface ServedCluster {
  model: ClusterData['model'];
  expertLayers: number;
  experts: number;
  expertsPerToken: number;
  /** Homes are strict, so that workers cache their own experts. */
  strictHomes: boolean;
  /** The address by which other machines may reach this one if main listens on every interface. */
  machineAddress: string;
}

/** The facts that change. `status.problems` includes the nodes that are lost. */
export interface ClusterMoment {
  atMs: number;
  status: StatusReply;
  lost: readonly LostNode[];
}

/** Describes the whole cluster as main knows it. `status.nodes` begins with main. */
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
    nodes: [
      ...status.nodes.map((node) => presentNode(atHost(node, served.machineAddress), status)),
      ...lost.map(lostNode),
    ],
    groups: status.placement?.groups.map(({ workerIds }) => [...workerIds]) ?? [],
    groupReason: status.groupReason,
    activeRequests: status.activeSequences,
    queuedRequests: status.queuedRequests,
    problems: clusterProblems(status),
    joinCommand: own === undefined ? '' : joinCommand(own, served),
    isThisMachineOnly: own !== undefined && isLoopbackHost(hostOf(own.address)),
    hasAuthority: (status.trust ?? null) !== null,
    waitingMachines: status.trust?.waiting.length ?? 0,
    isInsecure: status.insecure === true,
  };
}

/** The command that makes another machine a worker: it needs only main's address, and fetches the experts that it is going to run. */
export function joinCommand(
  { address, cluster }: Pick<NodeIdentity, 'address' | 'cluster'>,
  { strictHomes, machineAddress }: Pick<ServedCluster, 'strictHomes' | 'machineAddress'>,
): string {
  const reachable = dialAddress(address, machineAddress);
  const words = ['odmoe', 'worker', '--main', shellWord(reachable), '--cluster', shellWord(cluster)];
  if (strictHomes) words.push('--homes', 'strict');
  // If only this machine can reach main, its other workers run here, too, and one of them has the usual port.
  if (isLoopbackHost(hostOf(reachable))) words.push('--port', '0');
  return words.join(' ');
}
