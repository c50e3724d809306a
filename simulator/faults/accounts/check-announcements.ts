import { miniBatchRowsFor } from '../../../main-node/pass/expert-work.js';
import { assignmentOf } from '../../../shared/decisions/placement/assignment-of.js';
import { expertsByWorker } from '../../../shared/decisions/placement/experts-by-worker.js';
import { prefillAssignment, usesNearlyAllExperts } from '../../../shared/decisions/placement/prefill-workers.js';
import { expertRowSize } from '../../../shared/model/model-shape.js';
import type { Announce, Placement } from '../../../shared/wire/messages.js';
import { isAlone, type AnswerAccount } from './answer-account.js';
import { predictsItself, type PredictionBook } from './prediction-book.js';
import type { JointPass } from './ran-passes.js';

/** An answer that has rows in a pass, with its predictions. */
export interface PredictedAnswer {
  answer: AnswerAccount;
  book: PredictionBook;
}

/** An announcement of main to a worker. */
export interface Announcement {
  at: number;
  worker: string;
  announce: Announce;
}

/** The announcements for one pass, with the problems and releases that follow from them. */
export interface AnnouncementAccount {
  problems: string[];
  /** "worker expert sequence position layer" of each expert that was announced and not requested, or that nobody will request. */
  releases: string[];
  /** "layer expert" of each expert that ran where it had been announced, and that main did not doubt. */
  announcedExperts: ReadonlySet<string>;
}

interface LayerAnnouncements {
  layer: number;
  /** "worker expert" pairs that main announced before its router chose, and after that. */
  before: string[];
  after: string[];
  /** Pairs that shadow announced directly. */
  direct: Set<string>;
  asked: Set<string>;
}

/** `announcements`: the announcements under the name of the pass, or of one of its rows alone. */
export function accountAnnouncements(
  pass: JointPass,
  members: readonly PredictedAnswer[],
  announcements: readonly Announcement[],
): AnnouncementAccount {
  const account: AnnouncementAccount & { announcedExperts: Set<string> } = {
    problems: [],
    releases: [],
    announcedExperts: new Set(),
  };
  const [first] = members;
  if (first === undefined) return account;
  const placement = first.answer.account.placement as Placement;
  const name = `${pass.members[0]?.sequence} ${pass.members[0]?.position}`;
  // Doubts take no announcement back: main asks there, or releases.
  const made = announcements.filter(({ announce }) => announce.doubted !== true);
  const takenBack = made.filter(
    (one) => isOfAnotherPass(pass, one.announce, members) || isGuessForOneRow(pass, one, members),
  );
  for (const { worker, announce } of takenBack)
    for (const expert of announce.experts)
      account.releases.push(
        `${worker} ${expert} ${announce.pass.sequence} ${announce.pass.position} ${announce.layer}`,
      );
  const own = made.filter((one) => !takenBack.includes(one));
  for (const layer of pass.choices.keys()) {
    const ofLayer = announcementsOfLayer(pass, layer, placement, members, own);
    const { before, after, direct, asked } = ofLayer;
    for (const pair of new Set([...before, ...after, ...direct])) {
      if (!asked.has(pair)) account.releases.push(`${pair} ${name} ${layer}`);
    }
    const doubted = doubtedPairs(announcements, layer, pass.chosenAt[layer] ?? 0);
    const byOthers = new Set([...direct].map(expertOf));
    const isMeant = (pair: string): boolean => !doubted.has(pair) || byOthers.has(expertOf(pair));
    for (const pair of [...before, ...direct])
      if (asked.has(pair) && isMeant(pair)) account.announcedExperts.add(`${layer} ${expertOf(pair)}`);
    const problems = [...checkHolders(ofLayer), ...checkAnnounced(pass, ofLayer, placement, members)];
    account.problems.push(...problems.map((what) => `layer ${layer}: ${what}`));
  }
  return account;
}

/** "worker expert" pairs of which main's last word before its router chose was a doubt. */
function doubtedPairs(announcements: readonly Announcement[], layer: number, chosenAt: number): Set<string> {
  const doubted = new Set<string>();
  for (const { at, worker, announce } of [...announcements].sort((left, right) => left.at - right.at)) {
    if (announce.layer !== layer || at >= chosenAt) continue;
    for (const expert of announce.experts)
      if (announce.doubted === true) doubted.add(`${worker} ${expert}`);
      else doubted.delete(`${worker} ${expert}`);
  }
  return doubted;
}

/** True if the announcement was made ahead for the rest of a prompt, which then ran in a pass that begins with another sequence. */
function isOfAnotherPass(
  { members: [named] }: JointPass,
  { pass }: Announce,
  members: readonly PredictedAnswer[],
): boolean {
  if (pass.sequence === named?.sequence && pass.position === named.position) return false;
  const of = members.find(({ answer }) => answer.account.sequence === pass.sequence);
  return of !== undefined && pass.position < of.answer.promptTokens;
}

/**
 * True if main guessed experts of the first layer before the pass began, for a pass of one row, and the pass then had drafts: main releases the
 * guessed experts, also those that the pass asks for.
 */
function isGuessForOneRow(
  pass: JointPass,
  { at, announce }: Announcement,
  members: readonly PredictedAnswer[],
): boolean {
  const [first] = members;
  const [range, ...others] = announce.rows;
  const isOneRow = others.length === 0 && range?.rows === 1 && range.sequence === announce.pass.sequence;
  if (first === undefined || announce.layer !== 0 || !isOneRow || at >= pass.begunAt) return false;
  const guessed = members.find(({ answer }) => answer.account.sequence === range.sequence);
  const ran = pass.members.find(({ sequence }) => sequence === range.sequence);
  if (guessed === undefined || ran === undefined || predictsItself(first.answer)) return false;
  return ran.tokenIds.length > 1 && guessed.answer.decodes.get(pass) === ran.position;
}

function announcementsOfLayer(
  pass: JointPass,
  layer: number,
  placement: Placement,
  members: readonly PredictedAnswer[],
  announcements: readonly Announcement[],
): LayerAnnouncements {
  const chosenAt = pass.chosenAt[layer] ?? 0;
  const pairs = (isBefore: boolean): string[] =>
    announcements
      .filter(({ at, announce }) => announce.layer === layer && at < chosenAt === isBefore)
      .flatMap(({ worker, announce }) => announce.experts.map((expert) => `${worker} ${expert}`));
  const direct = new Set<string>();
  for (const { book } of members) {
    const { inTime } = book.layerOf(pass, layer);
    if (inTime === null || inTime.mainAnnounces === true) continue;
    for (const [expert, worker] of assignmentOf(placement, inTime)) direct.add(`${worker} ${expert}`);
  }
  const asked = pass.executes
    .filter(({ execute }) => execute.layer === layer)
    .flatMap(({ worker, execute }) => execute.experts.map(({ expert }) => `${worker} ${expert}`));
  return { layer, before: pairs(true), after: pairs(false), direct, asked: new Set(asked) };
}

/** An announced expert must run on a worker to which it was announced. */
function checkHolders({ before, direct, asked }: LayerAnnouncements): string[] {
  const held = new Set([...before, ...direct].map(expertOf));
  const there = new Set([...before, ...direct].filter((pair) => asked.has(pair)).map(expertOf));
  return [...asked]
    .map(expertOf)
    .filter((expert) => held.has(expert) && !there.has(expert))
    .map((expert) => `expert ${expert} ran elsewhere than at the worker to which it was announced`);
}

/**
 * Checks the experts that main must announce to the workers. If the pass is expected to use nearly all experts of a layer and not all rows are
 * predicted: all experts. Otherwise: the experts that shadow sent to main only, and those that are requested in several messages. Each expert
 * is announced once.
 */
function checkAnnounced(
  pass: JointPass,
  { layer, before, after, direct, asked }: LayerAnnouncements,
  placement: Placement,
  members: readonly PredictedAnswer[],
): string[] {
  const [first] = members;
  if (first === undefined) return [];
  const { settings, shape, decodes } = first.answer;
  const alone = members.length === 1 && isAlone(pass, decodes);
  const rows = pass.members.reduce((sum, { tokenIds }) => sum + tokenIds.length, 0);
  const batches = Math.ceil(rows / miniBatchRowsFor(settings.main.miniBatchRows, expertRowSize(shape)));
  const isPrompts = members.some(({ answer }) => !isAnswerOnly(pass, answer));
  const overlaps = settings.main.prefillOverlap;
  const problems: string[] = [];
  const known = new Set([...before, ...direct]);
  const inSeveral = batches > 1 && !alone && (overlaps || !isPrompts);
  const used = inSeveral ? [...asked].filter((pair) => !known.has(pair)) : [];
  if (used.sort().join() !== [...after].sort().join())
    problems.push(`experts ${after.join(', ')} were announced with a request; due were ${used.join(', ')}`);
  const isAnnounced =
    overlaps && !alone && usesNearlyAllExperts(placement, differentRows(pass)) && isUnpredicted(pass, members);
  const experts = before.map(expertOf);
  const forMain = new Set(members.flatMap(({ book }) => [...book.layerOf(pass, layer).forMain]));
  const others = new Set([...direct].map(expertOf));
  if (isAnnounced) {
    const missing = Array.from({ length: placement.experts }, (_, expert) => expert).filter(
      (expert) => !experts.includes(expert) && !others.has(expert),
    );
    if (missing.length > 0) problems.push(`no worker got an announcement of experts ${missing.join(' ')}`);
    if (forMain.size > 0 || others.size > 0 || predictsItself(first.answer)) return problems;
    const due = [...expertsByWorker(prefillAssignment(placement, layer, batches))].flatMap(([worker, ofWorker]) =>
      ofWorker.map((expert) => `${worker} ${expert}`),
    );
    if (due.sort().join() !== [...before].sort().join())
      problems.push(`announced were ${before.join(', ')}; due were ${due.join(', ')}`);
    return problems;
  }
  if (predictsItself(first.answer)) return problems;
  if (new Set(experts).size < experts.length) problems.push(`experts were announced twice: ${before.join(', ')}`);
  const unannounced = [...forMain].filter((expert) => !experts.includes(expert) && !others.has(expert));
  if (unannounced.length > 0)
    problems.push(`main did not announce experts ${unannounced.join(' ')}, which shadow had predicted`);
  // In the first layer main may guess some experts.
  const needless = layer === 0 ? [] : experts.filter((expert) => !forMain.has(expert));
  if (needless.length > 0) problems.push(`main announced experts ${needless.join(' ')}, which nobody had predicted`);
  return problems;
}

function expertOf(pair: string): number {
  return Number(pair.slice(pair.lastIndexOf(' ') + 1));
}

/** True if all rows of the answer in this pass run for the first time. */
function isAnswerOnly(pass: JointPass, { account, decodes }: AnswerAccount): boolean {
  return pass.members.every(
    ({ sequence, position }) => sequence !== account.sequence || decodes.get(pass) === position,
  );
}

function isUnpredicted(pass: JointPass, members: readonly PredictedAnswer[]): boolean {
  return members.some(({ answer }) => {
    if (!isAnswerOnly(pass, answer)) return true;
    return !predictsItself(answer) && !isFed(answer, pass);
  });
}

/** True if shadow had got the sequence when the pass began. */
function isFed({ account }: AnswerAccount, pass: JointPass): boolean {
  for (const event of account.events) {
    if (event.kind === 'begin') return true;
    if (event.kind === 'pass' && event.of === pass) return false;
  }
  return false;
}

function differentRows({ members }: JointPass): number {
  const rows = members.flatMap(({ position, tokenIds }) => tokenIds.map((id, row) => `${position + row} ${id}`));
  return members.length === 1 ? rows.length : new Set(rows).size;
}
