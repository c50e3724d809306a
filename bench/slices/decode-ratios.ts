/** How many times less energy and time one policy takes than another, and what was held equal. SliceMoE's own ratios stand beside. */
import type { DecodeRow } from './measure-decode.js';

export interface RatioRow {
  table: 'ratio';
  model: string;
  cache_gb: number;
  /** The two policies, or starts of the cache, that are compared. */
  compared: string;
  held: string;
  /** Null: one of the two does not reach what is held equal. */
  energy: number | null;
  speed: number | null;
  /** SliceMoE's largest ratios ("up to"), at equal accuracy; null: of another model. */
  paper_energy: number | null;
  paper_speed: number | null;
}

const HELD_MASSES: readonly number[] = [0.9, 0.95, 0.98];
const PAPER_DBSC: Readonly<Record<string, readonly [number, number]>> = {
  'deepseek-v2-lite': [2.37, 1.81],
  'qwen1.5-moe-a2.7b': [2.85, 1.64],
};
const PAPER_WARM: readonly [number, number] = [2.31, 1.96];

export function ratioRows(rows: readonly DecodeRow[]): RatioRow[] {
  const places = [...new Set(rows.map(({ model, cache_gb: cacheGb }) => JSON.stringify([model, cacheGb])))];
  return places.flatMap((place) => {
    const [model, cacheGb] = JSON.parse(place) as [string, number];
    const here = rows.filter((row) => row.model === model && row.cache_gb === cacheGb);
    return [
      ...curveRatios(here, model, cacheGb),
      ...startRatios(here, model, cacheGb, 'DBSC'),
      ...startRatios(here, model, cacheGb, 'DBSC spare-critical'),
    ];
  });
}

/** Compares, for each mass, the rows with the least energy that keep at least this much of the routing mass. */
function curveRatios(rows: readonly DecodeRow[], model: string, cacheGb: number): RatioRow[] {
  return HELD_MASSES.map((mass) => {
    const bestOf = (policies: readonly string[]): DecodeRow | undefined =>
      rows
        .filter((row) => row.table === 'energy' && policies.includes(row.policy) && row.mass >= mass)
        .sort((left, right) => left.mj - right.mj)[0];
    return {
      table: 'ratio',
      model,
      cache_gb: cacheGb,
      compared: 'Cache-Prior, high-bit / DBSC+PCW',
      held: `routing mass of at least ${mass}; precision is not held`,
      ...ratiosOf(bestOf(['high-bit LRU', 'Cache-Prior']), bestOf(['DBSC+PCW']), PAPER_DBSC[model] ?? [null, null]),
    };
  });
}

function startRatios(rows: readonly DecodeRow[], model: string, cacheGb: number, policy: string): RatioRow[] {
  const starts = rows.filter((row) => row.table === 'dbsc' && row.policy === policy);
  return [...new Set(starts.map(({ steps }) => steps))].map((steps) => {
    const of = (start: string): DecodeRow | undefined =>
      starts.find((row) => row.start === start && row.steps === steps);
    return {
      table: 'ratio',
      model,
      cache_gb: cacheGb,
      compared: policy === 'DBSC' ? 'empty / warm' : 'empty / warm, spare-critical',
      held: `experts, critical share and the first ${steps} steps`,
      ...ratiosOf(of('empty'), of('warm'), PAPER_WARM),
    };
  });
}

type Ratios = Pick<RatioRow, 'energy' | 'speed' | 'paper_energy' | 'paper_speed'>;

function ratiosOf(
  slower: DecodeRow | undefined,
  faster: DecodeRow | undefined,
  [paperEnergy, paperSpeed]: readonly [number | null, number | null],
): Ratios {
  const compares = slower !== undefined && faster !== undefined;
  return {
    energy: compares ? slower.mj / faster.mj : null,
    speed: compares ? slower.ms / faster.ms : null,
    paper_energy: paperEnergy,
    paper_speed: paperSpeed,
  };
}
