import { miniBatchRowsFor } from '../../../main-node/pass/expert-work.js';
import type { NodeSettings } from '../../../shared/settings/node-settings.js';
import { expertRowSize, type ModelShape } from '../../../shared/model/model-shape.js';
import { assignmentOf } from '../../../shared/decisions/placement/assignment-of.js';
import type { ExecuteResult, GenerateRequest, Placement, Execute } from '../../../shared/wire/messages.js';
import type { SimulatedAnswer } from '../../cluster/simulated-cluster.js';
import type { MainCounters } from './main-counters.js';
import { decodesOf, isAlone, type AnswerAccount } from './answer-account.js';
import { checkAlignment, checkDrafts } from './check-alignment.js';
import { checkRecall, checkReloads, checkSentPredictions } from './check-predictions.js';
import { accountAnnouncements, type Announcement, type PredictedAnswer } from './check-announcements.js';
import { PredictionBook } from './prediction-book.js';
import type { JointPass } from './ran-passes.js';
import { withoutHead } from './head-messages.js';
import type { Recorded } from './recorder.js';
import { accountsOf, type SequenceAccount } from './sequence-account.js';
import type { Violation } from './violation.js';

/** The records of a time without faults, and the requests of that time. */
export interface CalmTime {
  events: readonly Recorded[];
  /** Settings of main. */
  settings: NodeSettings;
  /** Main has sound trained maps, and may use them. */
  hasMaps: boolean;
  shape: ModelShape;
  /** The placement when the record began; null: none was valid. */
  placement: Placement | null;
  answers: readonly { answer: SimulatedAnswer; request: GenerateRequest }[];
  /** Counters of main, when the record began and now. */
  before: MainCounters;
  after: MainCounters;
}

/**
 * Wrong messages may cost only time or memory and change no bit of an answer, so they are checked here. In a time without faults each message
 * is either due or not: executes follow from the router's choices; releases from experts that were announced and not chosen; rows and tokens
 * for shadow from main's passes; the figures of an answer from all of these.
 */
export function checkAccounts(calm: CalmTime): Violation[] {
  const { settings, shape, placement } = calm;
  const events = withoutHead(calm.events, settings.id, shape.expertLayers);
  const hasLogicalCaches = settings.main.quality.kind === 'cached';
  const counted = { host: settings.id, layers: shape.expertLayers, hasLogicalCaches };
  const { accounts, passes, problems } = accountsOf(events, counted, placement);
  const hasBudget = settings.device.memoryBudgetBytes > 0;
  const found = [...problems, ...checkCounters({ ...calm, events, accounts, hasBudget })];
  const predicted = new Map<number, PredictedAnswer>();
  for (const answer of answerAccounts(calm, accounts, found))
    predicted.set(answer.account.sequence, { answer, book: new PredictionBook(answer) });
  const results = resultsOf(events, settings.id);
  const account = checkPasses(passes, predicted, announcementsOf(events, settings.id), results);
  found.push(...account.problems, ...checkReleases(events, settings.id, account, predicted));
  for (const { answer, book } of predicted.values()) {
    const own = [
      ...checkCached(answer),
      ...checkRecall(answer, book),
      ...(answer.account.passes.every(({ of }) => account.announcedExperts.has(of))
        ? checkReloads(answer, account.announcedExperts, results)
        : []),
      ...checkSentPredictions(answer),
      ...checkAlignment(answer),
      ...checkDrafts(answer),
    ];
    found.push(...own.map((what) => `sequence ${answer.account.sequence}: ${what}`));
  }
  return found.map((detail) => ({ invariant: 'accounts add up', detail }));
}

/** An answer must report as cached exactly the tokens of its prompt that were not run. */
function checkCached({ account, finished }: AnswerAccount): string[] {
  const [first] = account.passes;
  if (first === undefined || first.position === finished.cachedTokens) return [];
  return [
    `${finished.cachedTokens} tokens of the prompt are reported as not run, and the first that ran is at ${first.position}`,
  ];
}

/** Accounts of the answers that ended successfully and whose messages are all known. */
function answerAccounts(
  { answers, settings, hasMaps, shape }: CalmTime,
  accounts: readonly SequenceAccount[],
  problems: string[],
): AnswerAccount[] {
  const left = [...accounts];
  return answers.flatMap(({ answer, request }) => {
    const { finished, tokens, promptTokenIds: promptIds } = answer;
    if (finished === null || promptIds.length === 0) return [];
    const tokenIds = tokens.map(({ tokenId }) => tokenId);
    const account = takeAccount(left, [...promptIds, ...tokenIds.slice(0, -1)]);
    if (account === null) {
      if (accounts.every(({ troubled }) => !troubled))
        problems.push(`of an answer asked for at ${answer.askedMs} ms no pass is known`);
      return [];
    }
    if (account.placement === null || account.troubled || shadowsOf(account) > 1) return [];
    const decodes = decodesOf(account, promptIds, tokenIds);
    const { maxTokens } = request;
    const promptTokens = promptIds.length;
    return [{ account, settings, hasMaps, shape, promptTokens, promptIds, tokenIds, maxTokens, finished, decodes }];
  });
}

/**
 * Finds the account whose passes ran all these tokens except the last one sampled, and removes it from the list. Tokens cached from an earlier
 * request are not run. If several accounts begin with these tokens, the one that ran the fewest tokens after them belongs to the answer.
 */
function takeAccount(accounts: SequenceAccount[], tokenIds: readonly number[]): SequenceAccount | null {
  let best: { place: number; ran: number } | null = null;
  for (const [place, account] of accounts.entries()) {
    const ran = ranTokens(account, tokenIds);
    // Drafts after them may have been run.
    if (!tokenIds.every((tokenId, index) => ran[index] === tokenId)) continue;
    if (best === null || ran.length < best.ran) best = { place, ran: ran.length };
  }
  return best === null ? null : (accounts.splice(best.place, 1)[0] ?? null);
}

/** The tokens that an account's passes ran; tokens before the first pass are taken from the answer. */
function ranTokens({ passes }: SequenceAccount, tokenIds: readonly number[]): readonly number[] {
  const [first] = passes;
  if (first === undefined) return [];
  const ran = tokenIds.slice(0, first.position);
  for (const { position, tokenIds: ofPass } of passes) {
    ran.length = Math.min(ran.length, position);
    ran.push(...ofPass);
  }
  return ran;
}

function shadowsOf({ events }: SequenceAccount): number {
  return new Set(events.flatMap((event) => (event.kind === 'begin' ? [event.shadow] : []))).size;
}

/** Results of workers, by "worker request". */
function resultsOf(events: readonly Recorded[], main: string): Map<string, ExecuteResult[]> {
  const results = new Map<string, ExecuteResult[]>();
  for (const event of events) {
    if (event.kind !== 'message' || event.way !== 'arrived' || event.to !== main || event.message.kind !== 'result')
      continue;
    const key = `${event.from} ${event.message.result.requestId}`;
    results.set(key, [...(results.get(key) ?? []), event.message.result]);
  }
  return results;
}

/** Main's announcements to workers, by "sequence position" of the pass. */
function announcementsOf(events: readonly Recorded[], main: string): Map<string, Announcement[]> {
  const announced = new Map<string, Announcement[]>();
  for (const [at, event] of events.entries()) {
    if (event.kind !== 'message' || event.way !== 'sent' || event.from !== main || event.message.kind !== 'announce')
      continue;
    const { announce } = event.message;
    const key = `${announce.pass.sequence} ${announce.pass.position}`;
    announced.set(key, [...(announced.get(key) ?? []), { at, worker: event.to, announce }]);
  }
  return announced;
}

interface CheckedPasses {
  problems: string[];
  /** Announced experts of the passes that were checked. */
  announcedExperts: ReadonlyMap<JointPass, ReadonlySet<string>>;
  /** "worker expert sequence position layer" of each release that is due. */
  releases: readonly string[];
  /** "sequence position" of passes that are not completely known. */
  unchecked: ReadonlySet<string>;
}

/** Checks the passes whose members are all known. */
function checkPasses(
  passes: readonly JointPass[],
  predicted: ReadonlyMap<number, PredictedAnswer>,
  announcements: ReadonlyMap<string, readonly Announcement[]>,
  results: ReadonlyMap<string, readonly ExecuteResult[]>,
): CheckedPasses {
  const problems: string[] = [];
  const announcedExperts = new Map<JointPass, ReadonlySet<string>>();
  const releases: string[] = [];
  const unchecked = new Set<string>();
  const lastEnd = new Map<string, number>();
  for (const pass of [...passes].sort((left, right) => left.begunAt - right.begunAt)) {
    const members = pass.members.flatMap(({ sequence }) => predicted.get(sequence) ?? []);
    const keys = new Set(pass.members.flatMap((member) => keysOf(pass, member, predicted)));
    const own = [...keys].flatMap((key) => {
      const after = lastEnd.get(key) ?? -1;
      lastEnd.set(key, pass.endedAt);
      return (announcements.get(key) ?? []).filter(({ at }) => at > after && at <= pass.endedAt);
    });
    const placements = new Set(members.map(({ answer }) => answer.account.placement?.epoch));
    if (members.length < pass.members.length || placements.size > 1) {
      for (const key of keys) unchecked.add(key);
      continue;
    }
    const account = accountAnnouncements(pass, members, own);
    announcedExperts.set(pass, account.announcedExperts);
    releases.push(...account.releases);
    const where = `the pass of ${pass.members.map(({ sequence, position }) => `${sequence} at ${position}`).join(', ')}`;
    const executes = checkExecutes(pass, results, isInOneMessage(pass, members));
    problems.push(...[...account.problems, ...executes].map((what) => `${where}: ${what}`));
  }
  return { problems, announcedExperts, releases, unchecked };
}

/** The keys under which a member's rows may have been announced. */
function keysOf(
  pass: JointPass,
  { sequence, position }: JointPass['members'][number],
  predicted: ReadonlyMap<number, PredictedAnswer>,
): string[] {
  const decode = predicted.get(sequence)?.answer.decodes.get(pass) ?? position;
  return [`${sequence} ${position}`, `${sequence} ${decode}`];
}

function isInOneMessage(pass: JointPass, members: readonly PredictedAnswer[]): boolean {
  const [first] = members;
  if (first === undefined) return false;
  const { settings, shape } = first.answer;
  if (members.length === 1 && isAlone(pass, first.answer.decodes)) return true;
  const rows = pass.members.reduce((sum, { tokenIds }) => sum + tokenIds.length, 0);
  const isAnswers = members.every(({ answer }) =>
    pass.members.every(
      ({ sequence, position }) => sequence !== answer.account.sequence || answer.decodes.get(pass) === position,
    ),
  );
  // Without overlap a worker gets the first row of a prompt before the others.
  if (!isAnswers && !settings.main.prefillOverlap) return false;
  return rows <= miniBatchRowsFor(settings.main.miniBatchRows, expertRowSize(shape));
}

/** Checks that main sent exactly the releases that were due: for passes, and for shadow's late predictions. */
function checkReleases(
  events: readonly Recorded[],
  main: string,
  { releases, unchecked }: CheckedPasses,
  predicted: ReadonlyMap<number, PredictedAnswer>,
): string[] {
  const isKnown = ({ sequence, position }: { sequence: number; position: number }): boolean =>
    predicted.has(sequence) && !unchecked.has(`${sequence} ${position}`);
  const due = [...releases];
  for (const { answer, book } of predicted.values())
    for (const prediction of book.latePredictions) {
      const { pass, layer } = prediction;
      if (prediction.mainAnnounces === true || !isKnown(pass) || answer.account.placement === null) continue;
      for (const [expert, worker] of assignmentOf(answer.account.placement, prediction))
        due.push(`${worker} ${expert} ${pass.sequence} ${pass.position} ${layer}`);
    }
  const sent = events.flatMap((event) => {
    if (event.kind !== 'message' || event.way !== 'sent' || event.from !== main || event.message.kind !== 'release')
      return [];
    const { pass, layer, experts } = event.message.release;
    if (!isKnown(pass)) return [];
    return experts.map((expert) => `${event.to} ${expert} ${pass.sequence} ${pass.position} ${layer}`);
  });
  if (due.sort().join() === sent.sort().join()) return [];
  return [`releases (worker expert sequence position layer): ${difference(due, sent)}`];
}

/** A time without faults: main's counters at its begin and end, and the events between them. */
export interface CountedTime {
  before: MainCounters;
  after: MainCounters;
  events: readonly Recorded[];
  accounts: readonly SequenceAccount[];
  answers: readonly { answer: SimulatedAnswer }[];
  /** With a budget, passes start again when the device refuses memory. */
  hasBudget: boolean;
}

/** Main's counters must have grown by the work of its device and the results of its clients, if every answer has ended successfully. */
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

/** A sequence that gives its memory back gets a new sequence of the device later. */
function timesCreated({ sequence, passes }: SequenceAccount): number {
  const members = passes.flatMap(({ of }) => of.members.filter((member) => member.sequence === sequence));
  const created = new Set(members.map((member) => member.created));
  return Math.max(0, created.size - 1);
}

function sumOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}

/**
 * Checks that ranPasses does not make: in any pass, the last execute of an expert at a worker is marked as the last, and each execute is
 * answered once. `inOneMessage`: a worker gets one message per layer, and an expert runs on one worker.
 */
function checkExecutes(
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
      problems.push(`the last of ${lasts.length} executes of expert ${expert} at ${worker} is not marked as the last`);
  if (!inOneMessage) return problems;
  const workers = executes.map(({ worker }) => worker);
  if (new Set(workers).size < workers.length) problems.push(`a worker got several executes: ${workers.join(' ')}`);
  const experts = [...runs.values()].map(({ expert }) => expert);
  if (new Set(experts).size < experts.length) problems.push('an expert was executed by several workers');
  return problems;
}

/** Describes the entries that are missing and those that are too many. */
function difference(due: readonly string[], sent: readonly string[]): string {
  const left = [...sent];
  const missing = due.filter((one) => {
    const place = left.indexOf(one);
    if (place >= 0) left.splice(place, 1);
    return place < 0;
  });
  return `missing are [${missing.slice(0, 5).join(', ')}], not due were [${left.slice(0, 5).join(', ')}]`;
}
