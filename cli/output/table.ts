import { printableLine } from '../../shared/base/text/printable-text.js';

export interface TableColumn {
  title: string;
  align: 'left' | 'right';
}

/** Lines of a plain-text table: a header, then the rows, columns two spaces apart. */
export function tableLines(columns: readonly TableColumn[], texts: readonly (readonly string[])[]): string[] {
  const rows = texts.map((cells) => cells.map(printableLine));
  const titles = columns.map((column) => column.title);
  const widths = titles.map((title, index) => Math.max(title.length, ...rows.map((row) => row[index]?.length ?? 0)));
  const line = (cells: readonly string[]): string =>
    columns
      .map(({ align }, index) => {
        const cell = cells[index] ?? '';
        const width = widths[index] ?? 0;
        return align === 'right' ? cell.padStart(width) : cell.padEnd(width);
      })
      .join('  ')
      .trimEnd();
  return [line(titles), ...rows.map(line)];
}
