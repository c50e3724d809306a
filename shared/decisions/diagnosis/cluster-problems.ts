import { formatByteSize } from '../../base/text/byte-size.js';
import type { ErrorCode } from '../../base/errors/registry.js';
import type { NodeStatus, StatusReply } from '../../wire/messages.js';

/** Advice for a peer that is silent. */
export const SILENT_PEER_ADVICE = 'is the host on, the address right, and no firewall between?';
/** Advice for a main without workers. */
export const NO_WORKERS_ADVICE = 'start workers: without one it cannot answer';

/** A problem of a cluster, as text for people. */
export interface ClusterProblem {
  /** Id of the node; empty: the problem concerns no single node. */
  node: string;
  /** A code of docs/errors.md. */
  code: string;
  message: string;
  /** The remedy. Empty: the message contains it. */
  advice: string;
}

/** The problems that main knows of. `odmoe doctor` and the page show them in these words. */
export function clusterProblems(status: Pick<StatusReply, 'nodes' | 'problems'>): ClusterProblem[] {
  return [
    ...problemOfWorkers(status),
    ...status.nodes.flatMap(problemOfFetching),
    ...status.problems.map(({ id, address, code, message }) => ({
      node: id || address,
      code,
      message,
      advice: adviceFor(code),
    })),
  ];
}

/** Progress of a worker that fetches experts of the pack: "w has fetched 1 GiB of 3 GiB". */
export function fetchProgress({ identity, fetchNeededBytes, fetchHeldBytes }: NodeStatus): string {
  return `${identity.id} has fetched ${formatByteSize(fetchHeldBytes)} of ${formatByteSize(fetchNeededBytes)}`;
}

function problemOfWorkers({ nodes }: Pick<StatusReply, 'nodes'>): ClusterProblem[] {
  if (nodes.some(({ identity }) => identity.role === 'ROLE_WORKER')) return [];
  const code: ErrorCode = 'NO_WORKERS';
  return [{ node: '', code, message: 'main serves with 0 workers', advice: NO_WORKERS_ADVICE }];
}

function problemOfFetching(node: NodeStatus): ClusterProblem[] {
  const { identity, fetchProblem } = node;
  if (fetchProblem === '') return [];
  const code: ErrorCode = 'PACK_INCOMPLETE';
  return [{ node: identity.id, code, message: fetchProgress(node), advice: fetchProblem }];
}

/** Advice for a peer that main cannot use, in addition to its message. */
function adviceFor(code: string): string {
  return ADVICE[code as ErrorCode] ?? '';
}

const ADVICE: Partial<Record<ErrorCode, string>> = {
  TIMEOUT: SILENT_PEER_ADVICE,
  WORKER_LOST: 'start it again, or look at its log and at the network; its work goes to the other workers meanwhile',
  SHADOW_LOST: 'start it again, or look at its log and at the network; experts are not predicted meanwhile',
};
