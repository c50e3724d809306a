import { spreadForDrafts } from '../../shared/decisions/placement/draft-rows.js';
import { usableDraftRows } from '../../shared/decisions/placement/draft-rows.js';
import { DEFAULT_SET_UP, type ClusterSetUp } from '../simulate/cluster-set-up.js';
import type { SimulationResult } from '../simulate/simulation-result.js';

/** Alignment periods in iterations; 0: never. */
export const PERIODS: readonly number[] = [1, 2, 4, 8, 16, 0];
export const DRAFT_ROWS: readonly (number | 'auto')[] = [1, 2, 3, 4, 6, 8, 'auto'];

export interface Candidate {
  setUp: ClusterSetUp;
  result: SimulationResult;
}

export interface SearchOptions {
  asked: Pick<ClusterSetUp, 'workers' | 'slots' | 'cacheBytes' | 'prediction'>;
  expertsPerToken: number;
  /** Alignment periods to try. */
  periods: readonly { token: number; keyValue: number }[];
  /** Simulates a set-up. */
  measure: (setUp: ClusterSetUp) => Promise<SimulationResult>;
  /** Called when a set-up has been tried; `best`: the best of all so far. */
  onTried?: (tried: number, best: Candidate) => void;
}

export interface SearchOutcome {
  /** The daemons' defaults with these workers. */
  plain: Candidate;
  /** The best with only the paper's mechanisms: the choice of grouping and periods. */
  grouped: Candidate;
  best: Candidate;
  /** All candidates that were tried, in order. */
  tried: Candidate[];
}

/**
 * Searches for the set-up that decodes fastest. It makes one choice after the other, each starting from the best so far: grouping or homes,
 * alignment periods, then drafts, optimistic passes and the spread of experts, then the period of keys and values again. Among equals it takes
 * the earlier one.
 */
export async function searchSetUps(options: SearchOptions): Promise<SearchOutcome> {
  const tried: Candidate[] = [];
  const known = new Map<string, Candidate>();
  let fastest: Candidate | null = null;
  const measured = async (setUp: ClusterSetUp): Promise<Candidate> => {
    const key = JSON.stringify(setUp);
    const before = known.get(key);
    if (before !== undefined) return before;
    const candidate = { setUp, result: await options.measure(setUp) };
    known.set(key, candidate);
    tried.push(candidate);
    if (fastest === null || tokensPerS(candidate) > tokensPerS(fastest)) fastest = candidate;
    options.onTried?.(tried.length, fastest);
    return candidate;
  };
  const bestOf = async (setUps: readonly [ClusterSetUp, ...ClusterSetUp[]]): Promise<Candidate> => {
    let best = await measured(setUps[0]);
    for (const setUp of setUps.slice(1)) {
      const next = await measured(setUp);
      if (tokensPerS(next) > tokensPerS(best)) best = next;
    }
    return best;
  };
  const [firstPeriods = { token: 1, keyValue: 1 }] = options.periods;
  const plain = await measured(withPeriods({ ...DEFAULT_SET_UP, ...options.asked }, firstPeriods));
  const bySize = await bestOf([plain.setUp, ...ownHomes(plain.setUp), ...groupings(plain.setUp, options)]);
  const otherPeriods = options.periods.map((periods) => withPeriods(bySize.setUp, periods));
  const grouped = await bestOf([bySize.setUp, ...otherPeriods]);
  const drafting = await bestOf([grouped.setUp, ...draftings(bySize.setUp)]);
  const { tokenPeriod } = drafting.setUp.align;
  const ofToken = options.periods.filter(({ token }) => token === tokenPeriod);
  const best = await bestOf([drafting.setUp, ...ofToken.map((periods) => withPeriods(drafting.setUp, periods))]);
  return { plain, grouped, best, tried };
}

export function tokensPerS({ result }: Candidate): number {
  return result.decodeTokensPerS;
}

/** Group sizes from one worker to twice top-k, but at most the size of the cluster. */
function groupings(setUp: ClusterSetUp, { asked: { workers }, expertsPerToken }: SearchOptions): ClusterSetUp[] {
  const most = Math.min(workers, 2 * expertsPerToken);
  const sizes = Array.from({ length: most }, (_, index) => index + 1);
  return sizes.map((groupSize) => ({ ...setUp, placement: { ...setUp.placement, groupSize } }));
}

/** Strict homes, where one worker caches each expert: only useful with a cache. */
function ownHomes(setUp: ClusterSetUp): ClusterSetUp[] {
  return setUp.cacheBytes === 0 ? [] : [{ ...setUp, placement: { ...setUp.placement, homes: 'strict' } }];
}

/** Only draft settings that the daemons would not change: no drafts that shadow cannot make. Drafts are tried with both spreads of experts. */
function draftings(setUp: ClusterSetUp): ClusterSetUp[] {
  const { prediction, align } = setUp;
  const usable = DRAFT_ROWS.filter((rows) => usableDraftRows(rows, prediction.source, align.tokenPeriod) === rows);
  const spreads = ['group', 'all'] as const;
  return spreads.flatMap((spread) =>
    (prediction.source === 'sep' ? [false, true] : [false]).flatMap((optimistic) =>
      usable
        .filter((rows) => spreadForDrafts(rows, spread) === spread)
        .map((rows) => ({
          ...setUp,
          drafting: { optimistic, rows, source: 'shadow', headExperts: 'auto' },
          placement: { ...setUp.placement, spread },
        })),
    ),
  );
}

function withPeriods(setUp: ClusterSetUp, { token, keyValue }: { token: number; keyValue: number }): ClusterSetUp {
  return { ...setUp, align: { ...setUp.align, tokenPeriod: token, keyValuePeriod: keyValue } };
}
