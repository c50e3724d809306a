import type { Violation } from './accounts/violation.js';
import type { LoggedLine } from './scenario-world.js';
import type { Scenario } from './scenario.js';

/** What somebody says that has given a peer up for its silence. */
const JUDGED = /no answer to an execute|(?:has|did) not answer|no (?:welcome|connection|hello)\b.* within/;

/** Where nothing happens but that one node stands still, that node blames nobody: the others were there all the time. */
export function checkBlame({ faults }: Pick<Scenario, 'faults'>, logged: readonly LoggedLine[]): Violation[] {
  const [stopped, ...others] = new Set(faults.map(({ node }) => node));
  if (stopped === undefined || others.length > 0 || faults.some(({ kind }) => kind !== 'stopAndContinue')) return [];
  return logged.flatMap(({ node, event, fields }) => {
    const { reason } = fields;
    if (node !== stopped || typeof reason !== 'string' || !JUDGED.test(reason)) return [];
    return [{ invariant: 'who stood still blames nobody', detail: `${node}: ${event}: ${reason}` }];
  });
}
