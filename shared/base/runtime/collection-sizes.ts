import { assertInvariant } from '../errors/assert-invariant.js';

/** Most objects of one search: more than any daemon has, apart from the values of its checkpoint and tokenizer. */
const MOST_OBJECTS = 2_000_000;

/** Says which objects the search does not enter: they are outside the daemon's own code, or belong to other components. */
export type IsOutside = (value: object) => boolean;

interface Place {
  readonly value: object;
  /** The class that holds the value, and the fields that lead to it. */
  readonly name: string;
}

/**
 * Numbers of entries of all maps, sets and lists that can be reached from `roots` by fields. Collections with the same place, "Class.field", are
 * summed. Values that only a closure holds are not seen. Compare two states of rest with answered requests between them: a name whose number has
 * grown is a leak, or a cache that needs a bound. Asserts that at most `mostObjects` objects are reached: beyond that the sizes would be
 * incomplete.
 */
export function collectionSizes(
  roots: readonly object[],
  isOutside: IsOutside = () => false,
  mostObjects = MOST_OBJECTS,
): Map<string, number> {
  const sizes = new Map<string, number>();
  const seen = new Set<object>();
  const open: Place[] = [];
  const meet = (value: unknown, name: string): void => {
    if (typeof value !== 'object' || value === null || seen.has(value)) return;
    seen.add(value);
    assertInvariant(seen.size <= mostObjects, 'a daemon leads to no more objects than are looked at.');
    if (!ArrayBuffer.isView(value) && !isOutside(value)) open.push({ value, name });
  };
  for (const root of roots) meet(root, '');
  for (let place = open.pop(); place !== undefined; place = open.pop()) {
    const { value, name } = place;
    const entries = entriesOf(value);
    if (entries === null) {
      for (const [field, held] of fieldsOf(value)) meet(held, `${ownName(value) ?? name}.${field}`);
      continue;
    }
    sizes.set(name, (sizes.get(name) ?? 0) + entries.size);
    for (const held of entries.values) meet(held, `${name}[]`);
  }
  return sizes;
}

/** Null: the value is not a collection. */
function entriesOf(value: object): { size: number; values: Iterable<unknown> } | null {
  if (value instanceof Map) return { size: value.size, values: pairsOf(value as Map<unknown, unknown>) };
  if (value instanceof Set) return { size: value.size, values: value as Set<unknown> };
  if (Array.isArray(value)) return { size: value.length, values: value as unknown[] };
  return null;
}

function* pairsOf(map: ReadonlyMap<unknown, unknown>): Generator<unknown> {
  for (const [key, value] of map) {
    yield key;
    yield value;
  }
}

/** Fields that hold values. Getters are not called. */
function fieldsOf(value: object): [string, unknown][] {
  return Object.entries(Object.getOwnPropertyDescriptors(value)).flatMap(([field, { value: held }]) =>
    held === undefined ? [] : [[field, held as unknown]],
  );
}

/** The class of the object; null for a plain object, which counts as part of its holder. */
function ownName(value: object): string | null {
  const { constructor } = value as { constructor?: { name?: string } };
  const name = constructor?.name ?? '';
  return name === '' || name === 'Object' ? null : name;
}
