import type { Execute, ExecuteResult } from '../../../shared/wire/messages.js';
import type { JointPass } from './ran-passes.js';

/**
 * What ranPasses has not compared: whatever the pass, the last execute of an expert at a worker says that it is the last, and each is
 * answered once. `inOneMessage`: a worker gets one message a layer, and an expert runs on one worker.
 */
export function checkExecutes(
  { executes, choices }: JointPass,
  results: ReadonlyMap<string, readonly ExecuteResult[]>,
  inOneMessage: boolean,
): string[] {
  const problems: string[] = [];
  for (const { worker, execute } of executes) {
    const answers = (results.get(`${worker} ${execute.requestId}`) ?? []).flatMap(({ experts }) => experts);
    const answered = answers.filter(({ failure }) => failure === null).length;
    if (answered !== execute.experts.length)
      problems.push(`${execute.experts.length} experts were asked of ${worker}, and ${answered} answered`);
  }
  for (const layer of choices.keys()) {
    const ofLayer = executes.filter(({ execute }) => execute.layer === layer);
    for (const what of checkLayer(ofLayer, inOneMessage)) problems.push(`layer ${layer}: ${what}`);
  }
  return problems;
}

function checkLayer(executes: readonly { worker: string; execute: Execute }[], inOneMessage: boolean): string[] {
  const problems: string[] = [];
  const runs = new Map<string, { worker: string; expert: number; lasts: boolean[] }>();
  for (const { worker, execute } of executes) {
    for (const { expert, last } of execute.experts) {
      const key = `${worker} ${expert}`;
      const run = runs.get(key) ?? { worker, expert, lasts: [] };
      run.lasts.push(last);
      runs.set(key, run);
    }
  }
  for (const { worker, expert, lasts } of runs.values())
    if (lasts.indexOf(true) !== lasts.length - 1)
      problems.push(`the last of ${lasts.length} executes of expert ${expert} at ${worker} is not told as such`);
  if (!inOneMessage) return problems;
  const workers = executes.map(({ worker }) => worker);
  if (new Set(workers).size < workers.length) problems.push(`a worker got several executes: ${workers.join(' ')}`);
  const experts = [...runs.values()].map(({ expert }) => expert);
  if (new Set(experts).size < experts.length) problems.push('an expert was executed by several workers');
  return problems;
}
