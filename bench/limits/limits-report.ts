/** Figures of `odmoe bench limits` for people and for programs. Pure. */
import { type TableColumn, tableLines } from '../../cli/output/table.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { MEGABYTE_BYTES } from '../../shared/wire/limits.js';
import type { LimitsCase } from './limits-case.js';
import type { CaseFigures } from './verdict.js';

export interface LimitsRow {
  about: Pick<LimitsCase, 'name' | 'about' | 'target'>;
  figures: CaseFigures;
  /** Names of the bounds that were passed. */
  passed: readonly string[];
}

const COLUMNS: readonly TableColumn[] = [
  { title: 'case', align: 'left' },
  { title: 'to', align: 'left' },
  ...['messages', 'processor ms', 'memory MiB', 'busy ms', 'stall ms', 'quiet', 'beside ms', 'log B/s'].map(numbers),
  { title: 'passed', align: 'left' },
  { title: 'answered', align: 'left' },
];

function numbers(title: string): TableColumn {
  return { title, align: 'right' };
}

export function limitsTable(rows: readonly LimitsRow[]): string {
  const cells = rows.map(({ about, figures, passed }) => {
    const { messages, processorMs, growthBytes, stallMs, quietStallMs, busyMs, besideMs, logBytesPerS, answer } =
      figures;
    const memory = (growthBytes / MEGABYTE_BYTES).toFixed(0);
    const counts = [processorMs.toFixed(0), memory, busyMs.toFixed(0), stallMs.toFixed(0), quietStallMs.toFixed(0)];
    const beside = besideMs === null ? 'unanswered' : besideMs.toFixed(0);
    const bounds = passed.length === 0 ? '-' : passed.join(', ');
    return [about.name, about.target, String(messages), ...counts, beside, logBytesPerS.toFixed(0), bounds, answer];
  });
  return `${tableLines(COLUMNS, cells).join('\n')}\n`;
}

export function limitsJson(rows: readonly LimitsRow[]): unknown {
  return {
    cases: rows.map(({ about: { name, about, target }, figures, passed }) => ({
      name,
      about,
      target,
      ...(snakeCaseKeys(figures) as object),
      passed,
    })),
  };
}
