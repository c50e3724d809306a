import { formatInvalid } from '../../shared/wire/output-format.js';
import { acceptsAny } from './character-automaton.js';
import type { JsonSchema, JsonType, TypedSchema, UnionSchema } from './json-schema.js';
import { hasNumber } from './number-machine.js';
import { commonNumbers, commonTexts, schemaOfKey } from './schema-rules.js';
import { schemaTakes } from './schema-takes.js';

/** Levels of nested schemas that are compared; deeper ones count as overlapping. */
const COMPARED_DEPTH = 8;

/**
 * Makes sure that no value is taken by two options of a oneOf. Where two objects may overlap, but one requires a key that the other does not
 * require, the other is written without that key. Throws REQUEST_INVALID for options that may still overlap.
 */
export function requireExclusive(union: UnionSchema<JsonSchema>): void {
  const options = [...union.options];
  for (const [second, other] of options.entries()) {
    for (let first = 0; first < second; first++) {
      const one = options[first] ?? other;
      if (!mayOverlap(one, other, COMPARED_DEPTH)) continue;
      const apart = keptApart(one, options[second] ?? other);
      if (apart === null) {
        throw formatInvalid(
          `oneOf at ${union.where} has options ${first} and ${second} that may take the same value; use anyOf, or let a required property tell them apart`,
        );
      }
      [options[first], options[second]] = apart;
    }
  }
  union.options = options;
}

/** The two objects, one of them without a key that the other requires; null: there is no such key. */
function keptApart(one: JsonSchema, other: JsonSchema): [JsonSchema, JsonSchema] | null {
  const [first, second] = [objectOf(one), objectOf(other)];
  if (first === null || second === null) return null;
  const inFirst = [...first.object.required].find((key) => !second.object.required.has(key));
  if (inFirst !== undefined) return [one, withoutKey(second, inFirst)];
  const inSecond = [...second.object.required].find((key) => !first.object.required.has(key));
  return inSecond === undefined ? null : [withoutKey(first, inSecond), other];
}

/** The schema that a reference leads to. */
function resolved(schema: JsonSchema): JsonSchema {
  let at: JsonSchema = schema;
  for (let step = 0; at.kind === 'reference' && step < COMPARED_DEPTH; step++)
    at = at.target.schema ?? { kind: 'never' };
  return at;
}

/** The schema, if it takes objects alone; null: it is another one. */
function objectOf(schema: JsonSchema): TypedSchema | null {
  const found = resolved(schema);
  return found.kind === 'typed' && found.types.size === 1 && found.types.has('object') ? found : null;
}

function withoutKey(schema: TypedSchema, key: string): TypedSchema {
  const properties = new Map([...schema.object.properties, [key, { kind: 'never' } as const]]);
  return { ...schema, object: { ...schema.object, properties } };
}

/** False only if no value is taken by both. */
function mayOverlap(one: JsonSchema, other: JsonSchema, depth: number): boolean {
  if (one.kind === 'never' || other.kind === 'never') return false;
  if (one.kind === 'any' || other.kind === 'any' || depth === 0) return true;
  if (one.kind === 'values') return one.values.some((value) => schemaTakes(one, value) && schemaTakes(other, value));
  if (other.kind === 'values') return mayOverlap(other, one, depth);
  if (one.kind === 'reference') return mayOverlap(one.target.schema ?? { kind: 'never' }, other, depth - 1);
  if (one.kind === 'union') return one.options.some((option) => mayOverlap(option, other, depth));
  if (other.kind !== 'typed') return mayOverlap(other, one, depth);
  return [...one.types].some((type) => other.types.has(type) && mayOverlapIn(type, one, other, depth));
}

function mayOverlapIn(type: JsonType, one: TypedSchema, other: TypedSchema, depth: number): boolean {
  switch (type) {
    case 'boolean':
    case 'null':
      return true;
    case 'number':
      return hasNumber(commonNumbers(one.number, other.number, one.where));
    case 'string': {
      const [least, most] = [
        Math.max(one.string.least, other.string.least),
        Math.min(one.string.most, other.string.most),
      ];
      const pattern = commonTexts(one.string.pattern, other.string.pattern, one.where);
      return least <= most && (pattern === null || acceptsAny(pattern));
    }
    case 'array':
      return arraysMayOverlap(one.array, other.array, depth);
    case 'object':
      return objectsMayOverlap(one.object, other.object, depth);
  }
}

function arraysMayOverlap(one: TypedSchema['array'], other: TypedSchema['array'], depth: number): boolean {
  const [least, most] = [Math.max(one.least ?? 0, other.least ?? 0), Math.min(one.most, other.most)];
  if (least > most) return false;
  const itemOf = ({ first, items }: TypedSchema['array'], place: number): JsonSchema => first[place] ?? items;
  const compared = Math.min(least, Math.max(one.first.length, other.first.length, 1));
  return Array.from({ length: compared }, (_, place) => place).every((place) =>
    mayOverlap(itemOf(one, place), itemOf(other, place), depth - 1),
  );
}

function objectsMayOverlap(one: TypedSchema['object'], other: TypedSchema['object'], depth: number): boolean {
  const required = new Set([...one.required, ...other.required]);
  return [...required].every((key) => mayOverlap(schemaOfKey(one, key), schemaOfKey(other, key), depth - 1));
}
