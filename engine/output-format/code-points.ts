/** Characters (Unicode code points) as ranges in rising order, with both ends included and a gap of at least one between them. */
export type CodePoints = readonly (readonly [number, number])[];

export const LAST_CODE_POINT = 0x10ffff;
const [FIRST_SURROGATE, LAST_SURROGATE] = [0xd800, 0xdfff];

/** All characters that a text can contain: no lone surrogates. */
export const ANY_CODE_POINT: CodePoints = [
  [0, FIRST_SURROGATE - 1],
  [LAST_SURROGATE + 1, LAST_CODE_POINT],
];

/** Sorts and merges ranges, which may overlap. */
export function codePointsOf(ranges: readonly (readonly [number, number])[]): CodePoints {
  const sorted = [...ranges].sort((a, b) => a[0] - b[0]);
  const merged: [number, number][] = [];
  for (const [low, high] of sorted) {
    const last = merged.at(-1);
    if (last !== undefined && low <= last[1] + 1) last[1] = Math.max(last[1], high);
    else merged.push([low, high]);
  }
  return merged;
}

export function union(...sets: readonly CodePoints[]): CodePoints {
  return codePointsOf(sets.flat());
}

/** All other code points; they include the surrogates if the set has none. */
export function complement(set: CodePoints): CodePoints {
  const others: [number, number][] = [];
  let next = 0;
  for (const [low, high] of set) {
    if (low > next) others.push([next, low - 1]);
    next = high + 1;
  }
  if (next <= LAST_CODE_POINT) others.push([next, LAST_CODE_POINT]);
  return others;
}

export function intersection(first: CodePoints, second: CodePoints): CodePoints {
  const both: [number, number][] = [];
  let [i, j] = [0, 0];
  for (let a = first[i], b = second[j]; a !== undefined && b !== undefined; a = first[i], b = second[j]) {
    const [low, high] = [Math.max(a[0], b[0]), Math.min(a[1], b[1])];
    if (low <= high) both.push([low, high]);
    if (a[1] < b[1]) i += 1;
    else j += 1;
  }
  return both;
}

export function contains(set: CodePoints, codePoint: number): boolean {
  return set.some(([low, high]) => codePoint >= low && codePoint <= high);
}

/** A key that is the same for equal sets. */
export function codePointsKey(set: CodePoints): string {
  return set.map(([low, high]) => `${low}-${high}`).join(' ');
}

/**
 * Divides all characters into the fewest classes so that each set is a union of classes. Returns the classes, and for each set the indexes of
 * its classes. `work` is called with a number of steps before they are done.
 */
export function classesOf(
  sets: readonly CodePoints[],
  work: (steps: number) => void,
): { classes: CodePoints[]; classesOfSet: number[][] } {
  const starts = new Set<number>();
  for (const set of [ANY_CODE_POINT, ...sets]) {
    for (const [low, high] of set) {
      starts.add(low);
      starts.add(high + 1);
    }
  }
  const edges = [...starts].sort((a, b) => a - b);
  work(edges.length * (sets.length + 1));
  const rangesOf = new Map<string, { ranges: [number, number][]; members: number[] }>();
  for (const [index, low] of edges.entries()) {
    const next = edges[index + 1];
    if (next === undefined || !contains(ANY_CODE_POINT, low)) continue;
    const members = [...sets.keys()].filter((set) => contains(sets[set] ?? [], low));
    const key = members.join(' ');
    const found = rangesOf.get(key) ?? { ranges: [], members };
    found.ranges.push([low, next - 1]);
    rangesOf.set(key, found);
  }
  const groups = [...rangesOf.values()];
  const classesOfSet: number[][] = sets.map(() => []);
  for (const [index, { members }] of groups.entries()) {
    for (const member of members) classesOfSet[member]?.push(index);
  }
  return { classes: groups.map(({ ranges }) => codePointsOf(ranges)), classesOfSet };
}
