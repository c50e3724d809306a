import { assertInvariant } from '../errors/assert-invariant.js';

/** More objects than any daemon has, beside the values of its checkpoint and tokenizer. */
const MOST_OBJECTS = 2_000_000;

/** Says which objects are not looked into: they are outside the daemon's own code, or belong to others. */
export type IsOutside = (value: object) => boolean;

interface Place {
  readonly value: object;
  /** The class that holds it, and the fields that lead to it. */
  readonly name: string;
}

/**
 * How many entries the maps, sets and lists have that can be reached from `roots` by fields, summed over all that have the same place:
 * "Class.field". What only a closure knows is not seen. Of two states of rest in between which requests were answered, a name whose number
 * has grown is a leak, or a cache that should have a bound. Asserts that there are `mostObjects` at most: of more, sizes would not be whole.
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

/** Null: it is no collection. */
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

/** Fields that hold values: what is computed is not asked for. */
function fieldsOf(value: object): [string, unknown][] {
  return Object.entries(Object.getOwnPropertyDescriptors(value)).flatMap(([field, { value: held }]) =>
    held === undefined ? [] : [[field, held as unknown]],
  );
}

/** Its class; null for a plain object, which belongs to whoever holds it. */
function ownName(value: object): string | null {
  const { constructor } = value as { constructor?: { name?: string } };
  const name = constructor?.name ?? '';
  return name === '' || name === 'Object' ? null : name;
}
