import { type ExactJson, JsonFloat, readExactJson } from '../../shared/base/json/exact-json.js';
import type { CharacterAutomaton } from './character-automaton.js';
import type { NumberRule } from './number-machine.js';

/** A `bigint` is an integer that no double can represent. */
export type JsonValue = null | boolean | number | bigint | string | JsonValue[] | { [key: string]: JsonValue };

export type JsonType = 'object' | 'array' | 'string' | 'number' | 'boolean' | 'null';

/** A checked JSON schema without conjunctions, with only the parts that decide about values. */
export type JsonSchema =
  | { kind: 'any' }
  | { kind: 'never' }
  | ValuesSchema
  | UnionSchema<JsonSchema>
  | { kind: 'reference'; target: SchemaTarget }
  | TypedSchema;

/** The values that all conditions accept. `where`: place in the schema, for messages. */
export interface ValuesSchema {
  kind: 'values';
  values: readonly JsonValue[];
  conditions: readonly JsonSchema[];
  where: string;
}

/** `isExclusive`: exactly one option must accept a value (oneOf); else at least one (anyOf). `Inner`: the form of schemas inside this one. */
export interface UnionSchema<Inner> {
  kind: 'union';
  /** Changed only while the schema is being read. */
  options: readonly Inner[];
  isExclusive: boolean;
  where: string;
}

/** The target of a reference; set when the whole schema has been read. */
export interface SchemaTarget {
  schema: JsonSchema | null;
}

export interface TypedSchema<Inner = JsonSchema> {
  kind: 'typed';
  types: ReadonlySet<JsonType>;
  number: NumberRule;
  string: StringRule;
  array: ArrayRule<Inner>;
  object: ObjectRule<Inner>;
  /** Place in the schema, for messages. */
  where: string;
}

export interface StringRule {
  /** Number of characters (code points). */
  least: number;
  most: number;
  /** Automaton of the pattern and the format, without the length limits; null: neither. */
  pattern: CharacterAutomaton | null;
  /** Place of the rule in the schema, for messages. */
  where: string;
}

export interface ArrayRule<Inner = JsonSchema> {
  /** Schemas of the first items, by place. */
  first: readonly Inner[];
  /** Schema of the items behind those. */
  items: Inner;
  /** The schema does not mention items behind the first ones: they are valid, but are not written. */
  isOpenByDefault: boolean;
  /** Null: not given. Then all first items are written, although fewer are valid. */
  least: number | null;
  most: number;
}

export interface ObjectRule<Inner = JsonSchema> {
  properties: ReadonlyMap<string, Inner>;
  required: ReadonlySet<string>;
  /** The keys that are not listed as properties, in classes: a key belongs to exactly one class. */
  others: readonly KeyClass<Inner>[];
  /** Keys that no schema mentions are not valid (unevaluatedProperties: false). */
  isClosed: boolean;
  /** Schema of every key (propertyNames). */
  names: Inner;
  least: number;
  most: number;
}

/** Keys of one class, with the schema of their values. */
export interface KeyClass<Inner = JsonSchema> {
  /** Accepts the keys; null: every key. */
  keys: CharacterAutomaton | null;
  schema: Inner;
  /** The schema does not mention these keys: they are valid, but are written only where no other key is mentioned. */
  isDefault: boolean;
}

/** The value of a JSON text, with all digits of its integers. Throws SyntaxError. */
export function readJsonValue(text: string): JsonValue {
  return plainValue(readExactJson(text));
}

function plainValue(value: ExactJson): JsonValue {
  if (value instanceof JsonFloat) return value.value;
  if (Array.isArray(value)) return value.map(plainValue);
  if (!(value instanceof Map)) return value;
  return Object.fromEntries([...value].map(([key, inner]) => [key, plainValue(inner)]));
}

/** The JSON of a value. */
export function writeJsonValue(value: JsonValue): string {
  return jsonOf(value, Object.keys);
}

/** A text that is the same for equal values, with their keys in any order. */
export function canonicalJson(value: JsonValue): string {
  return jsonOf(value, (object) => Object.keys(object).sort());
}

function jsonOf(value: JsonValue, keysOf: (object: object) => string[]): string {
  if (typeof value === 'bigint') return String(value);
  if (typeof value !== 'object' || value === null) return JSON.stringify(value === 0 ? 0 : value);
  if (Array.isArray(value)) return `[${value.map((item) => jsonOf(item, keysOf)).join()}]`;
  const properties = keysOf(value).map((key) => `${JSON.stringify(key)}:${jsonOf(value[key] ?? null, keysOf)}`);
  return `{${properties.join()}}`;
}
