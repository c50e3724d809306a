import { tableLines } from '../../cli/output/table.js';
import { linePlotSvg, type PlotPanel } from '../plot/line-plot.js';
import type { ComparedPolicy } from './cached-worker.js';
import { isSamePlace, type PoolsCell, statementsOf } from './pools-figures.js';
import { POOLS } from '../../shared/settings/cache-policies.js';

const POLICY_NAMES: Readonly<Record<ComparedPolicy, string>> = {
  planned: 'planned',
  ranked: 'by rank',
  lru: 'LRU',
  fifo: 'FIFO',
  marking: 'Marking',
  popularity: 'popularity',
  residency: 'residency',
  none: 'no cache',
};

/** Tables for people. */
export function poolsText(cells: readonly PoolsCell[]): string {
  const single = cells.filter(({ users }) => users === 1);
  const many = cells.filter(({ users }) => users > 1);
  const sections = [
    ['Tokens/s of whole answers', ...cellTable(single, ({ tokensPerS }) => tokensPerS.toFixed(2))],
    ['TPOT, ms', ...cellTable(single, ({ tpotMs }) => tpotMs.toFixed(0))],
    ['TTFT, ms', ...cellTable(single, ({ ttftMs }) => ttftMs.toFixed(0))],
    ['Found in memory whole + in part, %', ...cellTable(single, hitText)],
    ['Tokens/s, several answers at a time', ...cellTable(many, ({ tokensPerS }) => tokensPerS.toFixed(2))],
    ['Seconds to the last token, by tokens of an answer', ...latencyTable(single)],
    ['Planned pools: whole / compressed / signs and mantissas / exponents', ...planTable(single)],
    ['Beside ZipMoE', ...statementTable(cells)],
  ];
  return sections
    .filter((lines) => lines.length > 2)
    .map((lines) => lines.join('\n'))
    .join('\n\n');
}

function hitText({ wholeShare, partShare }: PoolsCell): string {
  return `${(wholeShare * 100).toFixed(0)} + ${(partShare * 100).toFixed(0)}`;
}

/** A table with one row per place and one column per policy. */
function cellTable(cells: readonly PoolsCell[], textOf: (cell: PoolsCell) => string): string[] {
  const policies = policiesOf(cells);
  const columns = [
    { title: 'model', align: 'left' as const },
    ...['memory, GB', 'of experts', 'at a time', ...policies.map((policy) => POLICY_NAMES[policy])].map((title) => ({
      title,
      align: 'right' as const,
    })),
  ];
  const rows = placesOf(cells).map((place) => [
    place.model,
    (place.memoryBytes / 1e9).toFixed(1),
    `${Math.round(place.cachedShare * 100)} %`,
    String(place.users),
    ...policies.map((policy) => {
      const cell = cells.find((each) => each.policy === policy && isSamePlace(each, place));
      return cell === undefined ? '' : textOf(cell);
    }),
  ]);
  return tableLines(columns, rows);
}

/** Latencies at the middle one of the budgets. */
function latencyTable(cells: readonly PoolsCell[]): string[] {
  const policies = policiesOf(cells);
  const titles = ['tokens', ...policies.map((policy) => POLICY_NAMES[policy])];
  const columns = [
    ...['model', 'of experts'].map((title) => ({ title, align: 'left' as const })),
    ...titles.map((title) => ({ title, align: 'right' as const })),
  ];
  const rows = middlePlaces(cells).flatMap((place) =>
    place.latencies.map(({ tokens }, index) => [
      place.model,
      `${Math.round(place.cachedShare * 100)} %`,
      String(tokens),
      ...policies.map((policy) => {
        const cell = cells.find((each) => each.policy === policy && isSamePlace(each, place));
        return ((cell?.latencies[index]?.ms ?? NaN) / 1000).toFixed(1);
      }),
    ]),
  );
  return tableLines(columns, rows);
}

function planTable(cells: readonly PoolsCell[]): string[] {
  const columns = ['model', 'of experts', 'planned', 'residency'].map((title) => ({ title, align: 'left' as const }));
  const text = (cell: PoolsCell | undefined): string => {
    if (cell === undefined) return '';
    return POOLS.map((pool) => cell.capacities[pool]).join(' / ');
  };
  const rows = placesOf(cells).map((place) => [
    place.model,
    `${Math.round(place.cachedShare * 100)} %`,
    ...(['planned', 'residency'] as const).map((policy) =>
      text(cells.find((each) => each.policy === policy && isSamePlace(each, place))),
    ),
  ]);
  return tableLines(columns, rows);
}

function statementTable(cells: readonly PoolsCell[]): string[] {
  const columns = ['figure', 'what', 'paper', 'ours', 'holds'].map((title) => ({ title, align: 'left' as const }));
  const rows = statementsOf(cells).map(({ figure, what, paper, ours, holds }) => [
    figure,
    what,
    paper,
    ours,
    holds === null ? '' : holds ? 'yes' : 'NO',
  ]);
  return tableLines(columns, rows);
}

/** One line per cell. */
export function poolsCsv(cells: readonly PoolsCell[]): string {
  const header =
    'model,activations,cached_share,memory_bytes,at_a_time,policy,tokens_per_s,tpot_ms,ttft_ms,whole_share,part_share,loads,' +
    'full,compressed,sign_mantissa,exponent';
  const lines = cells.map((cell) => {
    return [
      cell.model,
      cell.activations,
      cell.cachedShare,
      cell.memoryBytes,
      cell.users,
      cell.policy,
      cell.tokensPerS.toFixed(4),
      cell.tpotMs.toFixed(3),
      cell.ttftMs.toFixed(3),
      cell.wholeShare.toFixed(4),
      cell.partShare.toFixed(4),
      cell.loads,
      ...POOLS.map((pool) => cell.capacities[pool]),
    ].join(',');
  });
  return [header, ...lines, ''].join('\n');
}

/** One row per model: tokens/s, TPOT and TTFT by memory (ZipMoE's figure 7), latency by length (9), tokens/s by answers at a time (8). */
export function poolsPlot(cells: readonly PoolsCell[]): string {
  const models = [...new Set(cells.map(({ model }) => model))];
  return linePlotSvg({
    title: 'Whole answers by memory and by what is cached',
    xLabel: '',
    yLabel: '',
    rows: models.map((model) => modelPanels(cells.filter((cell) => cell.model === model))),
  });
}

function modelPanels(cells: readonly PoolsCell[]): PlotPanel[] {
  const single = cells.filter(({ users }) => users === 1);
  const shares = cells.filter(({ users }) => users > 1).map(({ cachedShare }) => cachedShare);
  const many = cells.filter(({ cachedShare }) => shares.includes(cachedShare));
  const middle = middlePlaces(single);
  const model = cells[0]?.model ?? '';
  const panel = (title: string, of: readonly PoolsCell[], pointsOf: (cell: PoolsCell) => PlotPoint[]): PlotPanel => ({
    title,
    series: policiesOf(of).map((policy) => ({
      name: POLICY_NAMES[policy],
      points: of.filter((cell) => cell.policy === policy).flatMap(pointsOf),
    })),
  });
  const byMemory = (y: (cell: PoolsCell) => number) => (cell: PoolsCell) => [{ x: cell.memoryBytes / 1e9, y: y(cell) }];
  return [
    panel(
      `${model}: tokens/s by GB`,
      single,
      byMemory(({ tokensPerS }) => tokensPerS),
    ),
    panel(
      'TPOT, s, by GB',
      single,
      byMemory(({ tpotMs }) => tpotMs / 1000),
    ),
    panel(
      'TTFT, s, by GB',
      single,
      byMemory(({ ttftMs }) => ttftMs / 1000),
    ),
    panel(
      's by tokens of an answer',
      single.filter((cell) => middle.some((place) => isSamePlace(place, cell))),
      (cell) => cell.latencies.map(({ tokens, ms }) => ({ x: tokens, y: ms / 1000 })),
    ),
    panel('tokens/s by answers at a time', many, ({ users, tokensPerS }) => [{ x: users, y: tokensPerS }]),
  ];
}

interface PlotPoint {
  x: number;
  y: number;
}

/** The policies in the order of measurement. */
function policiesOf(cells: readonly PoolsCell[]): ComparedPolicy[] {
  return [...new Set(cells.map(({ policy }) => policy))];
}

function placesOf(cells: readonly PoolsCell[]): PoolsCell[] {
  return cells.filter((cell, index) => cells.findIndex((other) => isSamePlace(other, cell)) === index);
}

/** One place of each model, with the middle amount of memory. */
function middlePlaces(cells: readonly PoolsCell[]): PoolsCell[] {
  return [...new Set(cells.map(({ model }) => model))].flatMap((model) => {
    const places = placesOf(cells.filter((cell) => cell.model === model));
    return places[Math.floor(places.length / 2)] ?? [];
  });
}
