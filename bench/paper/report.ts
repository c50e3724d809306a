import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { type TableColumn, tableLines } from '../../cli/output/table.js';
import { formatBytes } from '../../shared/base/text/units.js';
import {
  bestDecodeOverFullyCached,
  likeWithLike,
  type Cell,
  type PastRow,
  type ShadowRow,
  type TableResult,
} from './cells.js';
import type { Range } from './measurement.js';
import type { SourceRow } from './sources.js';
import type { ShadowQuantize } from './set-up.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';

/** The conditions of the measurement. */
export interface PaperConditions {
  /** Null: no emulation; this machine's own times. */
  profile: string | null;
  workers: number;
  prompts: number;
  /** Precision of the shadow's arithmetic. */
  precision: ShadowPrecision;
  quantize: ShadowQuantize;
  /** True: in real time. */
  wall: boolean;
  /** Most tokens of an answer. */
  tokensLimit: number;
}

/** Measured divided by the paper's number, minus 1; null: the paper has no number, or nothing was measured. */
export function cellError({ paper, measured }: Cell): number | null {
  return paper === null || measured === null ? null : measured / paper - 1;
}

/** Simulated divided by measured, minus 1; null: one of them is missing. */
export function simulatorError(simulated: number | null, measured: number | null): number | null {
  return simulated === null || measured === null ? null : simulated / measured - 1;
}

/** The object that --json prints. */
export function reportJson(result: TableResult, conditions: PaperConditions): unknown {
  return snakeCaseKeys({
    ...conditions,
    cells: result.cells.map((cell) => ({
      ...cell,
      error: cellError(cell),
      simulatorError: simulatorError(cell.simulated, cell.measured),
    })),
    orders: result.orders,
    past: result.past,
    shadows: result.shadows,
    sources: result.sources,
    bestDecodeOverFullyCached: bestDecodeOverFullyCached(result),
    likeWithLike: likeWithLike(result),
  });
}

/** Tables for people. */
export function paperReportText(result: TableResult, conditions: PaperConditions): string {
  const { cells, past, shadows, sources } = result;
  const all = [
    cellSection(cells),
    pastSection(past),
    shadowSection(shadows),
    sourceSection(sources),
    orderSection(result),
  ];
  const sections = all.filter((section) => section.length > 0);
  const best = bestDecodeOverFullyCached(result);
  const { profile, workers, prompts, precision, quantize, wall, tokensLimit } = conditions;
  const how = `${workers} workers, ${precision} shadow (${quantize}), ${prompts} prompts of each length, answers of at most ${tokensLimit} tokens`;
  const closing = [
    ...(best === null ? [] : [`best decode over fully cached, FP32, no drafts: ${best.toFixed(3)} (paper: 0.755)`]),
    ...likeWithLike(result).map(({ cluster, machine, ratio }) => `${cluster} over ${machine}: ${ratio.toFixed(3)}`),
    `(${profile === null ? 'this machine, not emulated' : `emulated: ${profile}, ${wall ? 'in real time' : 'on a virtual clock'}`}; ${how})`,
  ];
  return `${[...sections, closing].map((lines) => lines.join('\n')).join('\n\n')}\n`;
}

const left = (title: string): TableColumn => ({ title, align: 'left' });
const right = (title: string): TableColumn => ({ title, align: 'right' });

function cellSection(cells: readonly Cell[]): string[] {
  if (cells.length === 0) return [];
  const rows = cells.map((cell) => [
    cell.table,
    cell.row,
    cell.column,
    cell.paper === null ? '-' : String(cell.paper),
    figure(cell.measured, 2),
    rangeText(cell.range),
    percent(cellError(cell)),
    figure(cell.simulated, 2),
    percent(simulatorError(cell.simulated, cell.measured)),
    cell.calibrated ? 'calibrated' : cell.structureFitted ? 'structure' : '',
  ]);
  return tableLines(
    [
      left('table'),
      left('row'),
      left('column'),
      right('paper'),
      right('measured'),
      right('of prompts'),
      right('error'),
      right('simulated'),
      right('of measured'),
      left(''),
    ],
    rows,
  );
}

function figure(value: number | null, digits: number): string {
  return value === null ? '-' : value.toFixed(digits);
}

function pastSection(past: readonly PastRow[]): string[] {
  if (past.length === 0) return [];
  const rows = past.map((row) => [
    row.setUp,
    row.decodeTokensPerS.toFixed(2),
    rangeText(row.range),
    figure(row.simulatedTokensPerS, 2),
    row.overFullyCached.toFixed(3),
    row.ttftMs.toFixed(0),
    figure(row.recall, 4),
    figure(row.acceptance, 3),
    row.tokensEqual ? 'equal' : 'DIFFERENT',
  ]);
  return tableLines(
    [
      left('past the paper'),
      right('tokens/s'),
      right('of prompts'),
      right('simulated'),
      right('over cached'),
      right('TTFT ms'),
      right('recall'),
      right('acceptance'),
      left('tokens'),
    ],
    rows,
  );
}

function sourceSection(sources: readonly SourceRow[]): string[] {
  if (sources.length === 0) return [];
  const rows = sources.map((row) => [
    row.source,
    row.setUp,
    row.decodeTokensPerS.toFixed(2),
    rangeText(row.range),
    row.overShadow.toFixed(3),
    figure(row.recall, 4),
    row.tokensEqual ? 'equal' : 'DIFFERENT',
  ]);
  return tableLines(
    [
      left('predictions from'),
      left('set-up'),
      right('tokens/s'),
      right('of prompts'),
      right('over shadow'),
      right('recall'),
      left('tokens'),
    ],
    rows,
  );
}

function shadowSection(shadows: readonly ShadowRow[]): string[] {
  if (shadows.length === 0) return [];
  const rows = shadows.map((row) => [
    row.precision,
    row.setUp,
    row.decodeTokensPerS.toFixed(2),
    rangeText(row.range),
    figure(row.simulatedTokensPerS, 2),
    figure(row.shadowTokenMs, 1),
    row.shadowMemoryBytes === null ? '-' : formatBytes(row.shadowMemoryBytes),
    figure(row.recall, 4),
    figure(row.acceptance, 3),
  ]);
  return tableLines(
    [
      left('shadow'),
      left('set-up'),
      right('tokens/s'),
      right('of prompts'),
      right('simulated'),
      { title: "shadow's ms", align: 'right' },
      right('memory'),
      right('recall'),
      right('acceptance'),
    ],
    rows,
  );
}

function orderSection({ orders }: TableResult): string[] {
  return orders.map(
    ({ table, expected, measured, holds }) =>
      `${table}: expected ${expected}; measured ${measured}: ${holds ? 'the same, within 0.5 %' : 'another order'}`,
  );
}

/** The lowest and the highest value as text. */
function rangeText(range: Range | null): string {
  return range === null ? '' : `${range.lowest.toFixed(2)}..${range.highest.toFixed(2)}`;
}

function percent(error: number | null): string {
  return error === null ? '' : `${error >= 0 ? '+' : ''}${(100 * error).toFixed(1)} %`;
}
