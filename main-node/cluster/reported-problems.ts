import type { PeerProblem } from '../../shared/wire/messages.js';

/** Problems that are told of at a time. */
export const MAX_TOLD_PROBLEMS = 64;

/** `problems`: those that matter most come first. Of more than may be told the number is told. Pure. */
export function reportedProblems(problems: readonly PeerProblem[], most = MAX_TOLD_PROBLEMS): PeerProblem[] {
  if (problems.length <= most) return [...problems];
  const left = problems.length - (most - 1);
  const code = 'NODE_REFUSED';
  const message = `and ${left} more peers that main cannot use, of less weight: they were refused, or nobody answers there`;
  return [...problems.slice(0, most - 1), { address: '', id: '', code, message }];
}
