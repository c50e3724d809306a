import { tableLines } from '../../cli/output/table.js';
import { linePlotSvg } from '../plot/line-plot.js';
import { MEASURED_POLICIES, type MeasuredPolicy, type PoolsBenchResult } from './measure-pools.js';

const POLICY_NAMES: Readonly<Record<MeasuredPolicy, string>> = {
  ...{ planned: 'planned pools', lru: 'LRU', fifo: 'FIFO', marking: 'Marking', none: 'no cache' },
};

/** A row a point, mean layer makespans by policy, and what the plan kept. */
export function poolsTable(results: readonly PoolsBenchResult[]): string {
  const left = ['trace', 'storage', 'budget'].map((title) => ({ title, align: 'left' as const }));
  const right = [
    ...MEASURED_POLICIES.map((policy) => `${POLICY_NAMES[policy]}, ms`),
    'expected',
    'against best other',
    'F/C/S/E',
  ];
  const columns = [...left, ...right.map((title) => ({ title, align: 'right' as const }))];
  const rows = points(results).map((point) => {
    const times = MEASURED_POLICIES.map((policy) => makespan(point, policy));
    const [planned = 0, ...others] = times;
    const own = point.find(({ policy }) => policy === 'planned');
    const { full, compressed, signMantissa, exponent } = own?.capacities ?? {
      full: 0,
      compressed: 0,
      signMantissa: 0,
      exponent: 0,
    };
    return [
      own?.trace ?? '',
      storageName(own?.storageBytesPerS ?? 0),
      `${Math.round((own?.budgetShare ?? 0) * 100)} %`,
      ...times.map((each) => each.toFixed(2)),
      (own?.expected.plannedMs ?? 0).toFixed(2),
      (planned / Math.min(...others)).toFixed(3),
      [full, compressed, signMantissa, exponent].join('/'),
    ];
  });
  return tableLines(columns, rows).join('\n');
}

/** Makespan over budget: a panel for each trace and storage. */
export function poolsPlot(results: readonly PoolsBenchResult[]): string {
  const traces = [...new Set(results.map(({ trace }) => trace))];
  const rates = [...new Set(results.map(({ storageBytesPerS }) => storageBytesPerS))];
  return linePlotSvg({
    title: 'Mean layer makespan by memory budget',
    xLabel: 'budget, % of all experts',
    yLabel: 'ms',
    rows: traces.map((trace) =>
      rates.map((rate) => ({
        title: `${trace}, ${storageName(rate)}`,
        series: MEASURED_POLICIES.map((policy) => ({
          name: POLICY_NAMES[policy],
          points: results
            .filter((each) => each.trace === trace && each.storageBytesPerS === rate && each.policy === policy)
            .map(({ budgetShare, layerMakespanMs }) => ({ x: budgetShare * 100, y: layerMakespanMs })),
        })),
      })),
    ),
  });
}

function points(results: readonly PoolsBenchResult[]): PoolsBenchResult[][] {
  const found = new Map<string, PoolsBenchResult[]>();
  for (const result of results) {
    const key = `${result.trace} ${result.storageBytesPerS} ${result.budgetShare}`;
    found.set(key, [...(found.get(key) ?? []), result]);
  }
  return [...found.values()];
}

function makespan(point: readonly PoolsBenchResult[], policy: MeasuredPolicy): number {
  return point.find((result) => result.policy === policy)?.layerMakespanMs ?? 0;
}

function storageName(bytesPerS: number): string {
  return bytesPerS === 0 ? 'unthrottled' : `${bytesPerS / 1e9} GB/s`;
}
