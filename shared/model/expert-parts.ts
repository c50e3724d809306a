/**
 * The parts into which an expert's stored bytes are cut. Each part is read, cached and counted by itself. Code that treats every part alike uses
 * this list, in the order in which parts are read; only code for one particular part names it.
 */
export const PARTS = ['exponent', 'signMantissa'] as const;
export type Part = (typeof PARTS)[number];

/** One value for each part. */
export type PerPart<T> = Readonly<Record<Part, T>>;

export function perPart<T>(valueOf: (part: Part) => T): PerPart<T> {
  return recordOf(PARTS, valueOf);
}

export function sumOfParts(values: PerPart<number>): number {
  return PARTS.reduce((sum, part) => sum + values[part], 0);
}

/** The part that holds the bytes of a plane of a matrix: plane 0 has the exponents, the others have signs and mantissas. */
export function partOfPlane(plane: number): Part {
  return plane === 0 ? 'exponent' : 'signMantissa';
}

/** The part of a sliced expert that has its upper slices. */
export const UPPER_PART: Part = partOfPlane(0);

/** An object with one value for each name, made in the order of the names. */
export function recordOf<Name extends string, T>(names: readonly Name[], valueOf: (name: Name) => T): Record<Name, T> {
  return Object.fromEntries(names.map((name) => [name, valueOf(name)])) as Record<Name, T>;
}
