import { SPACE_RUNS, stripped } from './characters.js';

/** Python's split() and rsplit(). `limit`: most parts that are split off. */

export function splitAt(text: string, separator: string, limit: number): string[] {
  const parts: string[] = [];
  let start = 0;
  while (parts.length < limit) {
    const at = text.indexOf(separator, start);
    if (at < 0) break;
    parts.push(text.slice(start, at));
    start = at + separator.length;
  }
  parts.push(text.slice(start));
  return parts;
}

export function splitAtEnd(text: string, separator: string, limit: number): string[] {
  const parts: string[] = [];
  let end = text.length;
  while (parts.length < limit) {
    const at = end < separator.length ? -1 : text.lastIndexOf(separator, end - separator.length);
    if (at < 0) break;
    parts.push(text.slice(at + separator.length, end));
    end = at;
  }
  parts.push(text.slice(0, end));
  return parts.reverse();
}

/** Splits at runs of white space. `fromEnd`: the last parts are split off. */
export function splitAtSpace(text: string, limit: number, fromEnd: boolean): string[] {
  const inside = stripped(text, null, limit === Infinity ? 'both' : fromEnd ? 'right' : 'left');
  if (inside === '') return [];
  const runs = [...inside.matchAll(SPACE_RUNS)].filter(
    ({ index, 0: run }) => index > 0 && index + run.length < inside.length,
  );
  const kept =
    limit === Infinity ? runs : fromEnd ? runs.slice(Math.max(0, runs.length - limit)) : runs.slice(0, limit);
  const parts: string[] = [];
  let start = 0;
  for (const { index, 0: run } of kept) {
    parts.push(inside.slice(start, index));
    start = index + run.length;
  }
  const last = inside.slice(start);
  parts.push(last);
  if (limit === Infinity || limit > kept.length) {
    const [first = ''] = parts;
    if (fromEnd) parts[0] = stripped(first, null, 'left');
    else parts[parts.length - 1] = stripped(parts.at(-1) ?? '', null, 'right');
  }
  return parts;
}
