import type { CachedAnswers } from './ask-cached.js';
import type { ComparedPolicy } from './cached-worker.js';
import type { PoolCapacities } from '../../shared/settings/cache-policies.js';
import { countInParts, NO_CAPACITIES } from '../../shared/decisions/caching/pool-capacities.js';

/** The conditions of a cell: a model's answers under a policy, with an amount of memory and a number of users. */
export interface CellPlace {
  model: string;
  /** The origin of the activations: recorded from a model, or drawn by popularity. */
  activations: 'recorded' | 'drawn';
  policy: ComparedPolicy;
  /** The share of all experts that the cache can hold in whole form. */
  cachedShare: number;
  /** The machine's whole memory. */
  memoryBytes: number;
  users: number;
}

export interface PoolsCell extends CellPlace {
  /** Mean time until an answer's first token, and mean time of each later token. */
  ttftMs: number;
  tpotMs: number;
  /** Rate over all answers, while at least one was running; the time of prompts counts, too. */
  tokensPerS: number;
  /** Mean time from the request to the n-th token. */
  latencies: { tokens: number; ms: number }[];
  /** Shares of the requested experts that were completely in memory, and of those that were partly in memory. */
  wholeShare: number;
  partShare: number;
  loads: number;
  /** Most experts in each pool. */
  capacities: PoolCapacities;
}

/** Computes the figures of answers. A new request is sent while others run, or right after them. Pure. */
export function cellOf(place: CellPlace, { answers, cache, loads }: CachedAnswers): PoolsCell {
  const first = ({ tokenMs }: (typeof answers)[number]): number => tokenMs[0] ?? 0;
  const last = ({ tokenMs }: (typeof answers)[number]): number => tokenMs.at(-1) ?? 0;
  const tokens = sum(answers, ({ tokenMs }) => tokenMs.length);
  const beginMs = Math.min(...answers.map(({ askedMs }) => askedMs));
  const busyMs = Math.max(...answers.map(last)) - beginMs;
  const longest = Math.min(...answers.map(({ tokenMs }) => tokenMs.length));
  const lengths = powersOfTwo(longest);
  const { hits = NO_CAPACITIES, misses = 0 } = cache ?? {};
  const parts = countInParts(hits);
  const uses = Math.max(1, hits.full + parts + misses);
  return {
    ...place,
    ttftMs: sum(answers, (answer) => first(answer) - answer.askedMs) / answers.length,
    tpotMs: sum(answers, (answer) => last(answer) - first(answer)) / Math.max(1, tokens - answers.length),
    tokensPerS: (1000 * tokens) / busyMs,
    latencies: lengths.map((length) => ({
      tokens: length,
      ms: sum(answers, ({ askedMs, tokenMs }) => (tokenMs[length - 1] ?? 0) - askedMs) / answers.length,
    })),
    wholeShare: hits.full / uses,
    partShare: parts / uses,
    loads,
    capacities: cache?.capacities ?? NO_CAPACITIES,
  };
}

/** The powers of two from 8, and the length itself. */
function powersOfTwo(longest: number): number[] {
  const lengths: number[] = [];
  for (let length = 8; length < longest; length *= 2) lengths.push(length);
  return [...lengths, longest];
}

/** A statement of ZipMoE's section 5, compared with our cells. */
export interface PoolsStatement {
  figure: string;
  what: string;
  paper: string;
  ours: string;
  /** Null: the paper states nothing that could hold. */
  holds: boolean | null;
}

/** Relative difference of times that is not due to the cache, but to the tokens that happen to meet a load. */
export const TOLERANCE = 0.02;

/** Statements for the measured policies; those of other policies are left out. Pure. */
export function statementsOf(cells: readonly PoolsCell[]): PoolsStatement[] {
  const single = cells.filter(({ users }) => users === 1);
  const many = cells.filter(({ users }) => users > 1);
  const statements = [
    saved('7', 'TPOT saved over no cache', '63 to 98 % over other systems', single, ({ tpotMs }) => tpotMs),
    saved('7', 'TTFT saved over no cache', '53 to 88 % over other systems', single, ({ ttftMs }) => ttftMs),
    memoryHelps(single),
    gained('8', 'tokens/s over no cache, several at a time', '1.79 to 42 over other systems', many, ['none']),
    gained('10', 'tokens/s over the best of LRU, FIFO and Marking', 'above 1', cells, COMPARED),
    gained('10', 'the same without planning: whole experts by rank', 'above 1', cells, COMPARED, 'ranked'),
    gained('10', 'tokens/s over the same without planning', 'above 1', cells, ['ranked']),
    gained('', 'tokens/s over fixed popularity', '', cells, ['popularity']),
    gained('', 'tokens/s over residency', '', cells, ['residency']),
    similar(cells),
  ];
  return statements.flatMap((statement) => statement ?? []);
}

const COMPARED: readonly ComparedPolicy[] = ['lru', 'fifo', 'marking'];

function saved(
  figure: string,
  what: string,
  paper: string,
  cells: readonly PoolsCell[],
  ms: (cell: PoolsCell) => number,
): PoolsStatement | null {
  const shares = pairs(cells, 'planned', ['none']).map(({ own, others }) => 1 - ms(own) / Math.min(...others.map(ms)));
  if (shares.length === 0) return null;
  const [least, most] = [Math.min(...shares), Math.max(...shares)].map((share) => (share * 100).toFixed(0));
  return { figure, what, paper, ours: `${least} to ${most} %`, holds: shares.every((share) => share > -TOLERANCE) };
}

function gained(
  figure: string,
  what: string,
  paper: string,
  cells: readonly PoolsCell[],
  others: readonly ComparedPolicy[],
  policy: ComparedPolicy = 'planned',
): PoolsStatement | null {
  const ratios = pairs(cells, policy, others).map(
    (pair) => pair.own.tokensPerS / Math.max(...pair.others.map(({ tokensPerS }) => tokensPerS)),
  );
  if (ratios.length === 0) return null;
  const behind = ratios.filter((ratio) => ratio < 1 - TOLERANCE).length;
  const ours = `${Math.min(...ratios).toFixed(2)} to ${Math.max(...ratios).toFixed(2)}, below in ${behind} of ${ratios.length}`;
  return { figure, what, paper, ours, holds: behind === 0 };
}

/** Checks that each policy is as fast with more memory as with less. */
function memoryHelps(cells: readonly PoolsCell[]): PoolsStatement | null {
  const worse = cells.filter((cell) =>
    cells.some(
      (smaller) =>
        smaller.model === cell.model &&
        smaller.policy === cell.policy &&
        smaller.memoryBytes < cell.memoryBytes &&
        cell.tokensPerS < (1 - TOLERANCE) * smaller.tokensPerS,
    ),
  );
  if (cells.length === 0) return null;
  const ours = worse.length === 0 ? 'never slower' : `slower in ${worse.length} of ${cells.length}`;
  return { figure: '7', what: 'more memory', paper: 'never slower', ours, holds: worse.length === 0 };
}

function similar(cells: readonly PoolsCell[]): PoolsStatement | null {
  const spreads = pairs(cells, 'lru', ['fifo', 'marking']).map(({ own, others }) => {
    const rates = [own, ...others].map(({ tokensPerS }) => tokensPerS);
    return Math.max(...rates) / Math.min(...rates);
  });
  if (spreads.length === 0) return null;
  const ours = `within ${((Math.max(...spreads) - 1) * 100).toFixed(0)} % of one another`;
  return { figure: '10', what: 'LRU, FIFO and Marking', paper: 'similar', ours, holds: null };
}

/** The cells of a policy, each with the cells of other policies under the same conditions. */
function pairs(
  cells: readonly PoolsCell[],
  policy: ComparedPolicy,
  others: readonly ComparedPolicy[],
): { own: PoolsCell; others: PoolsCell[] }[] {
  return cells
    .filter((cell) => cell.policy === policy)
    .map((own) => ({ own, others: cells.filter((cell) => others.includes(cell.policy) && isSamePlace(cell, own)) }))
    .filter((pair) => pair.others.length === others.length);
}

export function isSamePlace(left: CellPlace, right: CellPlace): boolean {
  return left.model === right.model && left.cachedShare === right.cachedShare && left.users === right.users;
}

function sum<Item>(items: readonly Item[], of: (item: Item) => number): number {
  return items.reduce((total, item) => total + of(item), 0);
}
