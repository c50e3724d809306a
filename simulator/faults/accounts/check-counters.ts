import type { SimulatedAnswer } from '../../cluster/simulated-cluster.js';
import type { MainCounters } from './main-counters.js';
import type { Recorded } from './recorder.js';
import type { SequenceAccount } from './sequence-account.js';

/** A time in which nothing went wrong: main's counters at its begin and its end, and what happened between them. */
export interface CountedTime {
  before: MainCounters;
  after: MainCounters;
  events: readonly Recorded[];
  accounts: readonly SequenceAccount[];
  answers: readonly { answer: SimulatedAnswer }[];
  /** Passes are begun again where the device refuses memory. */
  hasBudget: boolean;
}

/** Main's counters have grown by what its device has run and its clients have got, where every answer came to its end. */
export function checkCounters({ before, after, events, accounts, answers, hasBudget }: CountedTime): string[] {
  if (answers.some(({ answer }) => answer.finished === null && answer.promptTokenIds.length > 0)) return [];
  const passes = events.filter((event) => event.kind === 'pass');
  const finished = answers.flatMap(({ answer }) => (answer.finished === null ? [] : [answer.finished]));
  const drafts = finished.flatMap((one) => one.drafts ?? []);
  const due: Record<string, number> = {
    'odmoe_requests_total{code="ok"}': finished.length,
    odmoe_generated_tokens_total: sumOf(answers.map(({ answer }) => answer.tokens.length)),
    odmoe_cached_prompt_tokens_total: sumOf(finished.map((one) => one.cachedTokens)),
    odmoe_expert_reloads_total: sumOf(finished.map((one) => one.reloads)),
    odmoe_draft_tokens_proposed_total: sumOf(drafts.map(({ proposed }) => proposed)),
    odmoe_draft_tokens_accepted_total: sumOf(drafts.map(({ accepted }) => accepted)),
  };
  if (!hasBudget) {
    due['odmoe_passes_total'] = passes.length;
    due['odmoe_pass_rows_total'] = sumOf(passes.map(({ rows }) => rows.length));
  }
  if (accounts.every(({ troubled }) => !troubled)) due['odmoe_preemptions_total'] = sumOf(accounts.map(timesCreated));
  return Object.entries(due).flatMap(([name, wanted]) => {
    const grown = (after.get(name) ?? 0) - (before.get(name) ?? 0);
    return grown === wanted ? [] : [`${name} has grown by ${grown}, and ${wanted} were due`];
  });
}

/** A sequence that gives its memory back gets another one of the device's. */
function timesCreated({ sequence, passes }: SequenceAccount): number {
  const members = passes.flatMap(({ of }) => of.members.filter((member) => member.sequence === sequence));
  const created = new Set(members.map((member) => member.created));
  return Math.max(0, created.size - 1);
}

function sumOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}
