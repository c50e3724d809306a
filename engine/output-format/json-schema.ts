import { type ExactJson, JsonFloat, readExactJson } from '../../shared/base/json/exact-json.js';
import type { CharacterAutomaton } from './character-automaton.js';
import type { NumberRule } from './number-machine.js';

/** A `bigint` is an integer that no double can represent. */
export type JsonValue = null | boolean | number | bigint | string | JsonValue[] | { [key: string]: JsonValue };

export type JsonType = 'object' | 'array' | 'string' | 'number' | 'boolean' | 'null';

/** A checked JSON schema, with only the parts that decide about values. */
export type JsonSchema =
  | { kind: 'any' }
  | { kind: 'never' }
  | ValuesSchema
  | { kind: 'union'; options: readonly JsonSchema[] }
  | { kind: 'reference'; target: SchemaTarget }
  | TypedSchema;

/** The values that all conditions accept. `where`: place in the schema, for messages. */
export interface ValuesSchema {
  kind: 'values';
  values: readonly JsonValue[];
  conditions: readonly JsonSchema[];
  where: string;
}

/** The target of a $ref; set when the whole schema has been read. */
export interface SchemaTarget {
  schema: JsonSchema | null;
}

export interface TypedSchema {
  kind: 'typed';
  types: ReadonlySet<JsonType>;
  number: NumberRule;
  string: StringRule;
  array: ArrayRule;
  object: ObjectRule;
}

export interface StringRule {
  /** Number of characters (code points). */
  least: number;
  most: number;
  /** Automaton of the pattern, without the length limits; null: no pattern. */
  pattern: CharacterAutomaton | null;
  /** Place of the rule in the schema, for messages. */
  where: string;
}

export interface ArrayRule {
  items: JsonSchema;
  least: number;
  most: number;
}

export interface ObjectRule {
  properties: ReadonlyMap<string, JsonSchema>;
  required: ReadonlySet<string>;
  /** Schema of keys that are not listed as properties. */
  others: JsonSchema;
  /** The schema does not mention other keys: they are valid, but are not written if there are properties. */
  isOpenByDefault: boolean;
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
