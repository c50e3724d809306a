import { formatByteSize } from '../../shared/base/text/byte-size.js';
import { formatBytes } from '../../shared/base/text/units.js';
import type { LoadTiming } from '../../simulator/plan/io-bound.js';
import { tokensPerS, type Candidate, type SearchOutcome } from '../../simulator/plan/search-set-ups.js';
import { boundBy, type BoundBy, type TokenBreakdown } from '../../simulator/plan/token-breakdown.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { offerLines, offersObject, type PlannedOffer } from './sliced-offers-report.js';
import { tableLines } from './table.js';

/** The needs of one kind of box. */
export interface BoxNeeds {
  name: string;
  count: number;
  /** Bytes that are used of the memory of its device. */
  usedBytes: number;
  memoryBytes: number;
  diskBytes: number;
}

export interface ClusterPlan {
  profile: string;
  model: string;
  workers: number;
  timing: LoadTiming;
  search: SearchOutcome;
  breakdown: TokenBreakdown;
  boxes: BoxNeeds[];
  /** The formats of the model's weights, where they are not those of its config.json; null: they are. */
  format: string | null;
  /** The form of workers' experts, their slots at a time, and the bytes of their cache. */
  storage: string;
  slots: number;
  cacheBytes: number;
  /** Speed of the profile's machine that holds the whole model; null: there is none. */
  cachedTokensPerS: number | null;
  /** The best set-up with sliced experts. */
  offers: PlannedOffer[];
  /** The assumed relation between recall and alignment. */
  recallNote: string;
}

function fits(plan: ClusterPlan): boolean {
  return plan.boxes.every(({ usedBytes, memoryBytes }) => usedBytes <= memoryBytes);
}

export function planJson(plan: ClusterPlan): unknown {
  const { search, boxes, cachedTokensPerS } = plan;
  return snakeCaseKeys({
    profile: plan.profile,
    model: plan.model,
    workers: plan.workers,
    ioBound: plan.timing.ioBound,
    equation1: plan.timing,
    plain: candidateObject(search.plain),
    grouped: candidateObject(search.grouped),
    best: candidateObject(search.best),
    tried: search.tried.map(candidateObject),
    breakdown: plan.breakdown,
    boundBy: boundBy(plan.breakdown),
    cachedTokensPerS,
    bestOverCached: cachedTokensPerS && tokensPerS(search.best) / cachedTokensPerS,
    format: plan.format,
    storage: plan.storage,
    slots: plan.slots,
    cacheBytes: plan.cacheBytes,
    boxes,
    totalMemoryBytes: boxes.reduce((sum, { count, usedBytes }) => sum + count * usedBytes, 0),
    fits: fits(plan),
    recallNote: plan.recallNote,
    sliced: offersObject(plan.offers),
  });
}

function candidateObject({ setUp, result }: Candidate): object {
  return {
    groupSize: setUp.placement.groupSize,
    spread: setUp.placement.spread,
    homes: setUp.placement.homes,
    alignToken: setUp.align.tokenPeriod,
    alignKv: setUp.align.keyValuePeriod,
    optimistic: setUp.drafting.optimistic,
    draftRows: setUp.drafting.rows,
    ttftMs: result.ttftMs,
    tpotMs: result.tpotMs,
    decodeTokensPerS: result.decodeTokensPerS,
    outputTokensPerS: result.outputTokensPerS,
    recall: result.recall,
    acceptance: result.acceptance,
  };
}

const BOUND_WORDS: Record<BoundBy, string> = {
  main: "main's attention and routers: a faster card there, or more positions a pass",
  experts: "the workers' computing: faster cards there",
  loads: 'loading experts: more workers, faster links, or packed experts (--expert-storage)',
  drafts: 'waits for drafts: a faster shadow',
  network: 'messages on the network: a shorter round trip, or more positions a pass',
};

export function clusterPlanLines(plan: ClusterPlan): string[] {
  const { timing, search, breakdown } = plan;
  const ms = (value: number): string => `${value.toFixed(2)} ms`;
  const verdict = timing.ioBound ? 'I/O-bound where nothing is cached' : 'not I/O-bound';
  return [
    `${plan.model}${plan.format === null ? '' : ` in ${plan.format}`} on ${plan.workers} workers (${plan.profile}): ${verdict}`,
    `  a load takes ${ms(timing.loadMs)}; with ${timing.groups} groups it may take ${ms(timing.maxLoadMs)} ` +
      `(${timing.groups} x ${ms(timing.mainMs)} + ${timing.groups - 1} x ${ms(timing.workerMs)}, OD-MoE eq. 1)`,
    '',
    ...candidateLines(search, plan.cachedTokensPerS),
    '',
    `A token of the best set-up takes ${ms(search.best.result.tpotMs)}: main ${ms(breakdown.mainMs)}, experts ` +
      `${ms(breakdown.expertsMs)}, waits for loads ${ms(breakdown.waitsForLoadsMs)}, waits for drafts ` +
      `${ms(breakdown.waitsForDraftsMs)}, network and the rest ${ms(breakdown.networkMs)}.`,
    `What bounds it: ${BOUND_WORDS[boundBy(breakdown)]}.`,
    '',
    ...boxTable(plan.boxes),
    workerLine(plan),
    fits(plan) ? 'Everything fits.' : 'It does NOT fit: see the table.',
    '',
    ...(plan.offers.length === 0 ? [] : [...offerLines(plan.offers, 'speed is that of the best set-up with them'), '']),
    plan.recallNote,
  ];
}

function candidateLines({ plain, grouped, best }: SearchOutcome, cachedTokensPerS: number | null): string[] {
  const row = (name: string, candidate: Candidate): string[] => {
    const { setUp, result } = candidate;
    const { tokenPeriod, keyValuePeriod } = setUp.align;
    return [
      name,
      groupOf(setUp),
      setUp.placement.spread,
      `${tokenPeriod}/${keyValuePeriod}`,
      `${setUp.drafting.rows}${setUp.drafting.optimistic ? ', optimistic' : ''}`,
      `${result.ttftMs.toFixed(0)} ms`,
      `${result.tpotMs.toFixed(1)} ms`,
      tokensPerS(candidate).toFixed(3),
      cachedTokensPerS === null ? '-' : (tokensPerS(candidate) / cachedTokensPerS).toFixed(3),
    ];
  };
  const titles = ['set-up', 'group', 'spread', 'align', 'drafts', 'TTFT', 'TPOT', 'tokens/s', 'of cached'];
  return tableLines(
    titles.map((title, index) => ({ title, align: index < 5 ? ('left' as const) : ('right' as const) })),
    [row('defaults', plain), row('best without drafts', grouped), row('best', best)],
  );
}

function groupOf({ placement: { groupSize, homes } }: Candidate['setUp']): string {
  return homes === 'strict' ? 'own homes' : String(groupSize);
}

function workerLine({ slots, storage, cacheBytes }: ClusterPlan): string {
  const cacheText = cacheBytes === 0 ? 'and caches none' : `and caches others in ${formatByteSize(cacheBytes)}`;
  return `A worker has ${slots} ${slots === 1 ? 'slot' : 'slots'} for experts (${storage}), ${cacheText}.`;
}

function boxTable(boxes: readonly BoxNeeds[]): string[] {
  return tableLines(
    [
      { title: 'box', align: 'left' },
      { title: 'count', align: 'right' },
      { title: 'memory needed', align: 'right' },
      { title: 'it has', align: 'right' },
      { title: '', align: 'left' },
      { title: 'disk', align: 'right' },
    ],
    boxes.map(({ name, count, usedBytes, memoryBytes, diskBytes }) => [
      name,
      String(count),
      formatBytes(usedBytes),
      formatBytes(memoryBytes),
      usedBytes <= memoryBytes ? 'fits' : 'TOO LITTLE',
      formatBytes(diskBytes),
    ]),
  );
}
