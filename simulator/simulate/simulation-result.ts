import type { FinishedAnswer } from '../cluster/run-daemons.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Finished, NodeStatus, RoleName, Timing } from '../../shared/wire/messages.js';
import type { CacheStatus } from '../../shared/wire/messages.js';
import type { ClusterTiming } from './cluster-timing.js';
import { countInParts } from '../../shared/decisions/caching/pool-capacities.js';

/** Times when an answer's tokens were there, from the request's arrival. */
export interface SimulatedTimes {
  ttftMs: number;
  lastTokenMs: number;
  tokens: number;
}

/** Device memory of the fullest node of each role. */
export interface MemoryUse {
  main: number;
  /** Null: the cluster has no shadow. */
  shadow: number | null;
  worker: number;
  /** Total of all nodes. */
  total: number;
}

export interface SimulationResult {
  answers: SimulatedTimes[];
  ttftMs: number;
  /** Mean time of a token after the first; 0 if no answer has such a token. */
  tpotMs: number;
  decodeTokensPerS: number;
  /** Tokens per second of all answers together, over the time in which at least one request ran. */
  outputTokensPerS: number;
  /** Recall of shadow (OD-MoE equation 3); null if no shadow predicts. */
  recall: number | null;
  /** Share of accepted drafts among those that main checked; null if there were no drafts. */
  acceptance: number | null;
  rowsPerPass: number;
  tokensPerPass: number;
  /** Activated experts that were loaded without an announcement, or loaded again. */
  reloads: number;
  loads: number;
  evictions: number;
  executions: number;
  /** Uses of the workers' caches, for executions and for wrong predictions; null: no worker has a cache. */
  cache: CacheUses | null;
  memoryBytes: MemoryUse;
  timing: ClusterTiming;
  /** Events of the virtual clock. */
  events: number;
}

/** Number of uses whose expert was in memory whole, in part or compressed, or not at all. */
export interface CacheUses {
  full: number;
  partial: number;
  misses: number;
}

/** Combines the reports of the daemons about all answers with the recorded timing. */
export function summarize(
  answers: readonly FinishedAnswer[],
  timing: ClusterTiming,
  { events, workers }: { events: number; workers: number },
): SimulationResult {
  const times = answers.map(({ finished, tokens }) => answerTimes(timingOf(finished), tokens.length));
  const laterTokens = sum(times, ({ tokens }) => tokens - 1);
  const tpotMs = laterTokens === 0 ? 0 : sum(times, ({ lastTokenMs, ttftMs }) => lastTokenMs - ttftMs) / laterTokens;
  const nodes = answers.at(-1)?.finished.nodes ?? [];
  const ofWorkers = ofRole(nodes, 'ROLE_WORKER');
  requireWhole(ofWorkers, workers);
  const passes = Math.max(1, timing.passes.length);
  const caches = ofWorkers.flatMap(({ cache }) => cache ?? []);
  return {
    answers: times,
    ttftMs: sum(times, ({ ttftMs }) => ttftMs) / times.length,
    tpotMs,
    decodeTokensPerS: tpotMs === 0 ? 0 : 1000 / tpotMs,
    outputTokensPerS: outputTokensPerS(answers, times),
    recall: recallOf(answers),
    acceptance: acceptanceOf(answers),
    rowsPerPass: sum(timing.passes, ({ rows }) => rows) / passes,
    tokensPerPass: laterTokens / passes,
    reloads: sum(answers, ({ finished }) => finished.reloads),
    loads: sum(ofWorkers, ({ loads }) => loads),
    evictions: sum(ofWorkers, ({ evictions }) => evictions),
    executions: sum(ofWorkers, ({ executions }) => executions),
    cache: caches.length === 0 ? null : usesOf(caches),
    memoryBytes: memoryUse(nodes),
    timing,
    events,
  };
}

function usesOf(caches: readonly CacheStatus[]): CacheUses {
  return {
    full: sum(caches, ({ hits }) => hits.full),
    partial: sum(caches, ({ hits }) => countInParts(hits)),
    misses: sum(caches, ({ misses }) => misses),
  };
}

function answerTimes({ ttftMs, tpotMs }: Timing, tokens: number): SimulatedTimes {
  return { ttftMs, tokens, lastTokenMs: ttftMs + tpotMs * (tokens - 1) };
}

function timingOf({ timing }: Finished): Timing {
  if (timing === null) throw new OdmoeError('INTERNAL', 'a simulated answer came without its times');
  return timing;
}

/** Requests that ran at the same time share their time. */
function outputTokensPerS(answers: readonly FinishedAnswer[], times: readonly SimulatedTimes[]): number {
  let [busyMs, freeMs] = [0, 0];
  answers.forEach(({ askedMs }, index) => {
    const endMs = askedMs + (times[index]?.lastTokenMs ?? 0);
    busyMs += Math.max(0, endMs - Math.max(askedMs, freeMs));
    freeMs = Math.max(freeMs, endMs);
  });
  return busyMs === 0 ? 0 : (1000 * sum(times, ({ tokens }) => tokens)) / busyMs;
}

function recallOf(answers: readonly FinishedAnswer[]): number | null {
  const seps = answers.flatMap(({ finished }) => finished.sep ?? []);
  const activated = sum(seps, (sep) => sep.activated);
  return activated === 0 ? null : sum(seps, (sep) => sep.predictedCorrectly) / activated;
}

function acceptanceOf(answers: readonly FinishedAnswer[]): number | null {
  const drafts = answers.flatMap(({ finished }) => finished.drafts ?? []);
  const proposed = sum(drafts, (draft) => draft.proposed);
  return proposed === 0 ? null : sum(drafts, (draft) => draft.accepted) / proposed;
}

function memoryUse(nodes: readonly NodeStatus[]): MemoryUse {
  const most = (role: RoleName): number =>
    Math.max(0, ...ofRole(nodes, role).map((node) => node.deviceMemoryHighWaterBytes));
  const shadows = ofRole(nodes, 'ROLE_SHADOW');
  return {
    main: most('ROLE_MAIN'),
    shadow: shadows.length === 0 ? null : most('ROLE_SHADOW'),
    worker: most('ROLE_WORKER'),
    total: sum(nodes, (node) => node.deviceMemoryHighWaterBytes),
  };
}

/** Throws if a worker did not take part. */
function requireWhole(statuses: readonly NodeStatus[], workers: number): void {
  const placed = statuses.filter(({ slots }) => slots > 0).length;
  if (placed === workers) return;
  throw new OdmoeError('INTERNAL', `${placed} of ${workers} simulated workers took part`);
}

function ofRole(nodes: readonly NodeStatus[], role: RoleName): NodeStatus[] {
  return nodes.filter(({ identity }) => identity.role === role);
}

function sum<Item>(items: readonly Item[], of: (item: Item) => number): number {
  return items.reduce((total, item) => total + of(item), 0);
}
