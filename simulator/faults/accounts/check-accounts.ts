import { miniBatchRowsFor } from '../../../main-node/pass/expert-batches.js';
import type { NodeSettings } from '../../../shared/settings/node-settings.js';
import type { ModelShape } from '../../../shared/model/model-shape.js';
import { assignmentOf } from '../../../shared/decisions/placement/assignment-of.js';
import type { ExecuteResult, GenerateRequest, Placement } from '../../../shared/wire/messages.js';
import type { SimulatedAnswer } from '../../cluster/simulated-cluster.js';
import type { MainCounters } from './main-counters.js';
import { decodesOf, isAlone, type AnswerAccount } from './answer-account.js';
import { checkCounters } from './check-counters.js';
import { checkAlignment, checkDrafts } from './check-alignment.js';
import { checkExecutes } from './check-executes.js';
import { checkRecall, checkReloads, checkShadowTold } from './check-predictions.js';
import { accountTold, type Announcement, type Foretold } from './check-told.js';
import { difference } from './difference.js';
import { PredictionBook } from './prediction-book.js';
import type { JointPass } from './ran-passes.js';
import type { Recorded } from './recorder.js';
import { accountsOf, type SequenceAccount } from './sequence-account.js';
import type { Violation } from './violation.js';

/** What was recorded while nothing was wrong with the cluster, and what was asked of it meanwhile. */
export interface CalmTime {
  events: readonly Recorded[];
  /** main's. */
  settings: NodeSettings;
  shape: ModelShape;
  /** That held when the record began; null: none did. */
  placement: Placement | null;
  answers: readonly { answer: SimulatedAnswer; request: GenerateRequest }[];
  /** main's, when the record began and now. */
  before: MainCounters;
  after: MainCounters;
}

/**
 * Bits hide what only costs time or memory. Where nothing goes wrong every message is due or not: executes are the router's choices, releases
 * what was told of and not chosen, rows and tokens for shadow what main has run, and the figures of an answer what all of that adds up to.
 */
export function checkAccounts(calm: CalmTime): Violation[] {
  const { events, settings, shape, placement } = calm;
  const { accounts, passes, problems } = accountsOf(events, settings.id, placement, shape.expertLayers);
  const hasBudget = settings.device.memoryBudgetBytes > 0;
  const found = [...problems, ...checkCounters({ ...calm, accounts, hasBudget })];
  const foretold = new Map<number, Foretold>();
  for (const answer of answerAccounts(calm, accounts, found))
    foretold.set(answer.account.sequence, { answer, book: new PredictionBook(answer) });
  const results = resultsOf(events, settings.id);
  const told = checkPasses(passes, foretold, announcementsOf(events, settings.id), results);
  found.push(...told.problems, ...checkReleases(events, settings.id, told, foretold));
  for (const { answer, book } of foretold.values()) {
    const own = [
      ...checkCached(answer),
      ...checkRecall(answer, book),
      ...(answer.account.passes.every(({ of }) => told.foreseen.has(of))
        ? checkReloads(answer, told.foreseen, results)
        : []),
      ...checkShadowTold(answer),
      ...checkAlignment(answer),
      ...checkDrafts(answer),
    ];
    found.push(...own.map((what) => `sequence ${answer.account.sequence}: ${what}`));
  }
  return found.map((detail) => ({ invariant: 'accounts add up', detail }));
}

/** An answer tells as cached the tokens of its prompt that were not run, and no others. */
function checkCached({ account, finished }: AnswerAccount): string[] {
  const [first] = account.passes;
  if (first === undefined || first.position === finished.cachedTokens) return [];
  return [
    `${finished.cachedTokens} tokens of the prompt are told not to have been run, and the first that ran is at ${first.position}`,
  ];
}

/** Of the answers that came to their end, and of which everything is known. */
function answerAccounts(
  { answers, settings, shape }: CalmTime,
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
    return [{ account, settings, shape, promptTokens, promptIds, tokenIds, maxTokens, finished, decodes }];
  });
}

/**
 * The account whose passes have run these tokens, all but the one that was sampled last; it is taken out of the list. What was there from
 * an earlier request is not run. Several may begin with these tokens: the one that ran the fewest behind them is the answer's.
 */
function takeAccount(accounts: SequenceAccount[], tokenIds: readonly number[]): SequenceAccount | null {
  let best: { place: number; ran: number } | null = null;
  for (const [place, account] of accounts.entries()) {
    const ran = ranTokens(account, tokenIds);
    // Drafts behind them may have been run.
    if (!tokenIds.every((tokenId, index) => ran[index] === tokenId)) continue;
    if (best === null || ran.length < best.ran) best = { place, ran: ran.length };
  }
  return best === null ? null : (accounts.splice(best.place, 1)[0] ?? null);
}

/** What an account's passes have run; what was there before its first one is taken from the answer's tokens. */
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

/** What workers gave, by "worker request". */
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

/** What main told workers to load, by "sequence position" of the pass. */
function announcementsOf(events: readonly Recorded[], main: string): Map<string, Announcement[]> {
  const told = new Map<string, Announcement[]>();
  for (const [at, event] of events.entries()) {
    if (event.kind !== 'message' || event.way !== 'sent' || event.from !== main || event.message.kind !== 'prediction')
      continue;
    const { prediction } = event.message;
    const key = `${prediction.pass.sequence} ${prediction.pass.position}`;
    told.set(key, [...(told.get(key) ?? []), { at, worker: event.to, prediction }]);
  }
  return told;
}

interface CheckedPasses {
  problems: string[];
  /** Of the passes that were checked. */
  foreseen: ReadonlyMap<JointPass, ReadonlySet<string>>;
  /** "worker expert sequence position layer" of what is to be released. */
  releases: readonly string[];
  /** "sequence position" of passes of which not everything is known. */
  unchecked: ReadonlySet<string>;
}

/** Passes all of whose members are known. */
function checkPasses(
  passes: readonly JointPass[],
  foretold: ReadonlyMap<number, Foretold>,
  announcements: ReadonlyMap<string, readonly Announcement[]>,
  results: ReadonlyMap<string, readonly ExecuteResult[]>,
): CheckedPasses {
  const problems: string[] = [];
  const foreseen = new Map<JointPass, ReadonlySet<string>>();
  const releases: string[] = [];
  const unchecked = new Set<string>();
  const lastEnd = new Map<string, number>();
  for (const pass of [...passes].sort((left, right) => left.begunAt - right.begunAt)) {
    const members = pass.members.flatMap(({ sequence }) => foretold.get(sequence) ?? []);
    const keys = new Set(pass.members.flatMap((member) => keysOf(pass, member, foretold)));
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
    const told = accountTold(pass, members, own);
    foreseen.set(pass, told.foreseen);
    releases.push(...told.releases);
    const where = `the pass of ${pass.members.map(({ sequence, position }) => `${sequence} at ${position}`).join(', ')}`;
    const executes = checkExecutes(pass, results, isInOneMessage(pass, members));
    problems.push(...[...told.problems, ...executes].map((what) => `${where}: ${what}`));
  }
  return { problems, foreseen, releases, unchecked };
}

/** Names under which something may be told of a member's rows. */
function keysOf(
  pass: JointPass,
  { sequence, position }: JointPass['members'][number],
  foretold: ReadonlyMap<number, Foretold>,
): string[] {
  const decode = foretold.get(sequence)?.answer.decodes.get(pass) ?? position;
  return [`${sequence} ${position}`, `${sequence} ${decode}`];
}

function isInOneMessage(pass: JointPass, members: readonly Foretold[]): boolean {
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
  // Without overlap a worker gets a prompt's first row before the others.
  if (!isAnswers && !settings.main.prefillOverlap) return false;
  return rows <= miniBatchRowsFor(settings.main.miniBatchRows, shape.hiddenSize);
}

/** Releases that main sent are those that were due: in passes, and of what shadow told too late. */
function checkReleases(
  events: readonly Recorded[],
  main: string,
  { releases, unchecked }: CheckedPasses,
  foretold: ReadonlyMap<number, Foretold>,
): string[] {
  const isKnown = ({ sequence, position }: { sequence: number; position: number }): boolean =>
    foretold.has(sequence) && !unchecked.has(`${sequence} ${position}`);
  const due = [...releases];
  for (const { answer, book } of foretold.values())
    for (const prediction of book.latePredictions) {
      const { pass, layer } = prediction;
      if (prediction.untold === true || !isKnown(pass) || answer.account.placement === null) continue;
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
