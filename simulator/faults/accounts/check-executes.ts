import type { Execute } from '../../../shared/rpc/messages.js';
import type { RanPass, SequenceAccount } from './sequence-account.js';

/**
 * Every expert that the router chose is executed exactly once for each of its rows, and nothing else is; in decode by one worker, in one
 * message a worker and layer. The last execute of an expert at a worker says that it is the last.
 */
export function checkExecutes({ events, passes }: SequenceAccount, promptTokens: number): string[] {
  const sent = new Map<string, { worker: string; execute: Execute }[]>();
  let answers = 0;
  for (const event of events) {
    if (event.kind === 'execute') {
      const key = placeKey(event.execute.pass.position, event.execute.layer);
      sent.set(key, [...(sent.get(key) ?? []), event]);
    } else if (event.kind === 'result') {
      answers += event.result.experts.filter(({ failure }) => failure === null).length;
    }
  }
  const problems = passes.flatMap((pass) =>
    pass.choices.flatMap((choice, layer) => {
      const key = placeKey(pass.position, layer);
      const executes = sent.get(key) ?? [];
      sent.delete(key);
      const isDecode = pass.position >= promptTokens;
      return checkLayer(pass, choice, executes, isDecode).map(
        (what) => `layer ${layer} of the pass at ${pass.position}: ${what}`,
      );
    }),
  );
  for (const key of sent.keys())
    problems.push(`executes were sent for (position, layer) ${key}, where no router has chosen`);
  const asked = events.reduce((sum, event) => sum + (event.kind === 'execute' ? event.execute.experts.length : 0), 0);
  if (asked !== answers) problems.push(`${asked} experts were asked for and ${answers} answered`);
  return problems;
}

function checkLayer(
  pass: RanPass,
  choice: readonly number[][],
  executes: readonly { worker: string; execute: Execute }[],
  isDecode: boolean,
): string[] {
  const problems: string[] = [];
  const wanted = choice.flatMap((experts, row) => experts.map((expert) => `${expert} at ${pass.position + row}`));
  const asked = executes.flatMap(({ execute }) => pairsOf(execute));
  if (sorted(wanted) !== sorted(asked))
    problems.push(`the router chose experts ${sorted(wanted)}, and ${sorted(asked)} were executed`);
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
  if (!isDecode) return problems;
  const workers = executes.map(({ worker }) => worker);
  if (new Set(workers).size < workers.length) problems.push(`a worker got several executes: ${workers.join(' ')}`);
  const experts = [...runs.values()].map(({ expert }) => expert);
  if (new Set(experts).size < experts.length) problems.push('an expert was executed by several workers');
  return problems;
}

/** "expert at position" of each expert and row that it asks for. */
function pairsOf({ rows, experts }: Execute): string[] {
  const positions = rows.flatMap(({ position, rows: count }) =>
    Array.from({ length: count }, (_, row) => position + row),
  );
  return experts.flatMap(({ expert, rows: indexes }) => {
    const chosen = indexes.length === 0 ? positions : indexes.map((index) => positions[index]);
    return chosen.map((position) => `${expert} at ${position}`);
  });
}

export function placeKey(position: number, layer: number): string {
  return `${position} ${layer}`;
}

function sorted(texts: readonly string[]): string {
  return [...texts].sort().join(', ');
}
