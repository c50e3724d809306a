import { allFinite } from '../../native/index.js';
import { sameValues, type Opinion } from '../pass/second-opinion.js';
import type { ExpertId } from '../../shared/model/expert-id.js';

/** The values that a worker, or main's own device, gave for an execution. */
export interface CheckOpinion extends Opinion {
  /** Computed in main's own process: nobody else can have changed it. */
  readonly isMains: boolean;
}

/** 'agreed': all gave the same. 'lies': it is decided. 'open': another opinion is needed. `liars`: those whose values are proved wrong so far. */
export interface CheckVerdict<Given> {
  readonly kind: 'agreed' | 'lies' | 'open';
  readonly liars: readonly Given[];
  readonly witnesses: readonly Given[];
}

/**
 * Judges the opinions on one execution. Values that are no finite numbers are proved wrong by finite ones, as everywhere. Main's own values are
 * right. Otherwise the first values that two workers gave are right: two that lie together, and in the same way, are believed.
 */
export function judgeCheck<Given extends CheckOpinion>(opinions: readonly Given[]): CheckVerdict<Given> {
  const finite = opinions.filter(({ output }) => allFinite(output));
  const believable = finite.length > 0 ? finite : opinions;
  const right =
    finite.find(({ isMains }) => isMains) ?? believable.find((one) => supporters(believable, one).length > 1);
  const isDecided = right !== undefined || (finite.length === 1 && opinions.length > 1);
  const witnesses = right === undefined ? finite : supporters(believable, right);
  const liars = opinions.filter((one) => !witnesses.includes(one) && (right !== undefined || finite.length > 0));
  if (!isDecided) return { kind: 'open', liars, witnesses };
  return { kind: liars.length === 0 ? 'agreed' : 'lies', liars, witnesses };
}

function supporters<Given extends CheckOpinion>(opinions: readonly Given[], { output }: Given): Given[] {
  return opinions.filter((other) => sameValues(other.output, output));
}

/** The reason why a worker is set aside. */
export function provedLie({ layer, expert }: ExpertId, witnesses: readonly Opinion[]): string {
  return (
    `it gave other values for expert ${expert} of layer ${layer} than ${witnesses.map(({ workerId }) => workerId).join(' and ')} for the same rows ` +
    '(main.verify_share); a fault on the way between it and main cannot be told from one in its memory or device'
  );
}

/** Describes a difference that nobody could decide, for the problem of one of the workers. */
export function disputeOf({ layer, expert }: ExpertId, others: readonly string[]): string {
  return (
    `it and ${others.join(' and ')} give different values for expert ${expert} of layer ${layer} and the same rows, and nobody could say which are right: ` +
    'answers may be wrong. Start one more worker, or stop one that you do not trust'
  );
}
