/** A view of more lines than a terminal has rows. All functions are pure. */

/** The keys that scroll, as a terminal sends them. */
const STEPS: Readonly<Record<string, (page: number) => number>> = {
  '\u001b[A': () => -1,
  k: () => -1,
  '\u001b[B': () => 1,
  j: () => 1,
  '\u001b[5~': (page) => -page,
  '\u001b[6~': (page) => page,
  ' ': (page) => page,
  '\u001b[H': () => -Infinity,
  g: () => -Infinity,
  '\u001b[F': () => Infinity,
  G: () => Infinity,
};

/** The view: the rows of the terminal, and the first line that it shows. */
export interface LineView {
  readonly first: number;
  readonly rows: number;
}

/** The first line after the keys of a chunk; other keys change nothing. `count`: number of lines. */
export function scrolledBy(keys: string, { first, rows }: LineView, count: number): number {
  const shown = shownCount(rows, count);
  const pressed = keys.match(/\u001b\[\d*[A-Z~]|[^]/g) ?? [];
  const wanted = pressed.reduce((line, key) => bounded(line + (STEPS[key]?.(shown) ?? 0), shown, count), first);
  return bounded(wanted, shown, count);
}

/** The lines that fit, and, where there are more, a last one that says so. */
export function viewedLines(lines: readonly string[], { first, rows }: LineView): string[] {
  const shown = shownCount(rows, lines.length);
  if (shown === lines.length) return [...lines];
  const from = bounded(first, shown, lines.length);
  const place = `lines ${from + 1} to ${from + shown} of ${lines.length}; arrows and PageDown scroll, q ends`;
  return [...lines.slice(from, from + shown), place];
}

/** The number of lines that are shown. If not all fit, the last row says so. */
function shownCount(rows: number, count: number): number {
  return count <= rows ? count : Math.max(1, rows - 1);
}

function bounded(line: number, shown: number, count: number): number {
  return Math.max(0, Math.min(line, count - shown));
}
