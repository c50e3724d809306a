import { formatByteSize } from '../../base/text/byte-size.js';
import type { ErrorCode } from '../../base/errors/registry.js';
import type { NodeStatus, StatusReply } from '../../wire/messages.js';

/** What to do about a peer of which nothing is heard. */
export const SILENT_PEER_ADVICE = 'is the host on, the address right, and no firewall between?';
/** What to do about a main without workers. */
export const NO_WORKERS_ADVICE = 'start workers: without one it cannot answer';

/** Something that is wrong with a cluster, for people. */
export interface ClusterProblem {
  /** Empty: of no node in particular. */
  node: string;
  /** A code of docs/errors.md. */
  code: string;
  message: string;
  /** What to do about it. Empty: the message says so. */
  advice: string;
}

/** What main knows to be wrong. `odmoe doctor` and the page say it in these words. */
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

/** How far a worker is with what it fetches of the pack: "w has fetched 1 GiB of 3 GiB". */
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

/** What to do about a peer that main cannot use, beside what its message says. */
function adviceFor(code: string): string {
  return ADVICE[code as ErrorCode] ?? '';
}

const ADVICE: Partial<Record<ErrorCode, string>> = {
  TIMEOUT: SILENT_PEER_ADVICE,
  WORKER_LOST: 'start it again, or look at its log and at the network; its work goes to the other workers meanwhile',
  SHADOW_LOST: 'start it again, or look at its log and at the network; experts are not predicted meanwhile',
};
