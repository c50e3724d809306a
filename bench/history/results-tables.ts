import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { RunLine } from './run-line.js';

/**
 * The tables of docs/results.md. Each stands between two comments; the first one says which run it shows, and how:
 *
 *     <!-- table: hop 1 hops              file in bench/history, line, path to the rows in the figures ("." for the figures themselves)
 *     only bytes: 1024; 8192              rows to show (all, without such a line)
 *     size | {name}                       a column: its title, and the cell with values of the row; .N: decimals, %: a share in percent
 *     ratio | {ratio.2}
 *     across | KV {align_kv}              a row's values stand in a column of this title, and rows alike in the columns above become one
 *     cell | {recall.4}
 *     -->
 *     ...
 *     <!-- end of table -->
 */
const BLOCK = /^<!-- table: (\S+) (\d+) (\S+)\n([\s\S]*?)^-->\n[\s\S]*?^<!-- end of table -->$/gm;
const BEGIN = /^<!-- table:/gm;
const ONLY = /^only ([\w.]+): (.+)$/;
const VALUE = /\{([\w.]+?)(?:\.(\d)(?!\w))?( ?%)?\}/g;

/** The lines of a file in bench/history by its name without ".jsonl". @throws USAGE if there is none */
export type RunLinesOf = (name: string) => readonly RunLine[];

interface Column {
  title: string;
  cell: string;
}

interface TableSpec {
  only: { path: string; values: string[] }[];
  columns: Column[];
  across: string | null;
  cell: string | null;
}

/** The document with its tables made again. Pure. @throws USAGE, with the table that cannot be made */
export function renewTables(document: string, runLinesOf: RunLinesOf): string {
  let made = 0;
  const renewed = document.replace(BLOCK, (block: string, name: string, line: string, rows: string, spec: string) => {
    made += 1;
    const head = block.slice(0, block.indexOf('\n-->\n') + '\n-->\n'.length);
    const where = `table "${name} ${line} ${rows}"`;
    const run = runLinesOf(name)[Number(line) - 1];
    if (run === undefined) throw new OdmoeError('USAGE', `${where}: bench/history/${name}.jsonl has no line ${line}`);
    const table = tableOf(rowsOf(run.figures, rows, where), specOf(spec, where), where);
    return [head, ...originOf(run), ...table, '', '<!-- end of table -->'].join('\n');
  });
  const begun = document.match(BEGIN)?.length ?? 0;
  if (begun === made) return renewed;
  throw new OdmoeError('USAGE', `${begun - made} tables have no rows named in their first line, or no end`);
}

function specOf(text: string, where: string): TableSpec {
  const spec: TableSpec = { only: [], columns: [], across: null, cell: null };
  for (const line of text.split('\n').filter((each) => each !== '')) {
    const only = ONLY.exec(line);
    const [title = '', cell] = line.split(' | ');
    if (only !== null) spec.only.push({ path: only[1] ?? '', values: (only[2] ?? '').split('; ') });
    else if (cell === undefined) throw new OdmoeError('USAGE', `${where}: "${line}" is no column`);
    else if (title === 'across') spec.across = cell;
    else if (title === 'cell') spec.cell = cell;
    else spec.columns.push({ title, cell });
  }
  if ((spec.across === null) !== (spec.cell === null))
    throw new OdmoeError('USAGE', `${where}: "across" and "cell" go together`);
  return spec;
}

function rowsOf(figures: unknown, path: string, where: string): unknown[] {
  const rows = path === '.' ? figures : valueAt(figures, path);
  if (Array.isArray(rows)) return rows;
  throw new OdmoeError('USAGE', `${where}: the figures of that run have no list "${path}"`);
}

/** Undefined: not there. */
function valueAt(row: unknown, path: string): unknown {
  let value = row;
  for (const name of path.split('.')) {
    if (value === null || typeof value !== 'object') return undefined;
    value = (value as Record<string, unknown>)[name];
  }
  return value;
}

function tableOf(all: readonly unknown[], spec: TableSpec, where: string): string[] {
  const rows = all.filter((row) => spec.only.every(({ path, values }) => values.includes(String(valueAt(row, path)))));
  if (rows.length === 0) throw new OdmoeError('USAGE', `${where}: no row is left`);
  for (const cell of [...spec.columns.map((column) => column.cell), spec.across, spec.cell]) {
    if (cell === null || rows.some((row) => cellOf(row, cell) !== '')) continue;
    throw new OdmoeError('USAGE', `${where}: no row has all values of "${cell}"`);
  }
  const plain = rows.map((row) => spec.columns.map(({ cell }) => cellOf(row, cell)));
  const titles = spec.columns.map(({ title }) => title);
  const { across, cell } = spec;
  if (across === null || cell === null) return markdown(titles, plain);
  const places = rows.map((row) => cellOf(row, across));
  const columns = [...new Set(places)];
  const lines = new Map<string, string[]>();
  rows.forEach((row, index) => {
    const cells = plain[index] ?? [];
    const key = cells.join('|');
    const line = lines.get(key) ?? [...cells, ...columns.map(() => '')];
    line[titles.length + columns.indexOf(places[index] ?? '')] = cellOf(row, cell);
    lines.set(key, line);
  });
  return markdown([...titles, ...columns], [...lines.values()]);
}

/** Empty if the row lacks one of the values. */
function cellOf(row: unknown, cell: string): string {
  let isWhole = true;
  const text = cell.replace(VALUE, (_, path: string, decimals: string | undefined, percent: string | undefined) => {
    const value = valueAt(row, path);
    if (value === undefined || value === null) isWhole = false;
    if (typeof value === 'boolean') return value ? 'yes' : 'no';
    return typeof value === 'number' ? numberText(value, decimals, percent !== undefined) : String(value);
  });
  return isWhole ? text : '';
}

function numberText(value: number, decimals: string | undefined, isPercent: boolean): string {
  const shown = isPercent ? value * 100 : value;
  const digits = decimals === undefined ? {} : { minimumFractionDigits: Number(decimals) };
  const most = decimals === undefined ? 6 : Number(decimals);
  const text = shown.toLocaleString('en-US', { ...digits, maximumFractionDigits: most });
  return isPercent ? `${text} %` : text;
}

function markdown(titles: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`;
  return [line(titles), line(titles.map(() => '---')), ...rows.map(line)];
}

/** The command, and below it when and where the run was: each line of it only if it is known. */
function originOf({ command, date, machine, commit, note }: RunLine): string[] {
  const known = [
    date?.slice(0, 'YYYY-MM-DD'.length) ?? null,
    machine?.cpu ?? null,
    machine?.cores === undefined || machine.cores === null ? null : `${machine.cores} cores`,
    machine?.memory_gib === undefined || machine.memory_gib === null ? null : `${machine.memory_gib} GiB`,
    machine?.gpu ?? null,
    machine?.instruction_set ?? null,
    commit === null ? null : `commit ${commit}`,
    note,
  ].filter((part) => part !== null);
  const commands = command === null ? [] : [...command.split('\n').map((line) => `    ${line}`), ''];
  return [...commands, ...(known.length === 0 ? [] : [`${known.join(', ')}:`, ''])];
}
