import type { PeerProblem } from '../../shared/wire/messages.js';

/** Most problems that are reported at a time. */
export const MAX_REPORTED_PROBLEMS = 64;

/** `problems`: the most important ones come first. If there are more than `most`, the last entry says how many are left out. Pure. */
export function reportedProblems(problems: readonly PeerProblem[], most = MAX_REPORTED_PROBLEMS): PeerProblem[] {
  if (problems.length <= most) return [...problems];
  const left = problems.length - (most - 1);
  const code = 'NODE_REFUSED';
  const message = `and ${left} more peers that main cannot use, of less weight: they were refused, or nobody answers there`;
  return [...problems.slice(0, most - 1), { address: '', id: '', code, message }];
}
