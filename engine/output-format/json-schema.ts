import { type ExactJson, JsonFloat, readExactJson } from '../../shared/base/json/exact-json.js';
import type { CharacterAutomaton } from './character-automaton.js';
import type { NumberRule } from './number-machine.js';

/** A `bigint` is an integer that no double is. */
export type JsonValue = null | boolean | number | bigint | string | JsonValue[] | { [key: string]: JsonValue };

export type JsonType = 'object' | 'array' | 'string' | 'number' | 'boolean' | 'null';

/** A JSON schema that has been checked: what of it decides which values it takes. */
export type JsonSchema =
  | { kind: 'any' }
  | { kind: 'never' }
  | ValuesSchema
  | { kind: 'union'; options: readonly JsonSchema[] }
  | { kind: 'reference'; target: SchemaTarget }
  | TypedSchema;

/** Those of the values that all conditions take. `where` it stands, for messages. */
export interface ValuesSchema {
  kind: 'values';
  values: readonly JsonValue[];
  conditions: readonly JsonSchema[];
  where: string;
}

/** What a $ref leads to; set once the whole schema has been read. */
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
  /** Characters (code points). */
  least: number;
  most: number;
  /** Of the pattern, lengths not counted; null: there is none. */
  pattern: CharacterAutomaton | null;
  /** Where the rule stands, for messages. */
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
  /** Of keys that are no properties. */
  others: JsonSchema;
  /** Nothing was said about other keys: they are valid, but none is written where there are properties. */
  isOpenByDefault: boolean;
}

/** The value of a JSON text with all digits of its integers. Throws SyntaxError. */
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

/** The same text for equal values, whatever the order of their keys. */
export function canonicalJson(value: JsonValue): string {
  return jsonOf(value, (object) => Object.keys(object).sort());
}

function jsonOf(value: JsonValue, keysOf: (object: object) => string[]): string {
  if (typeof value === 'bigint') return String(value);
  if (typeof value !== 'object' || value === null) return JSON.stringify(value === 0 ? 0 : value);
  if (Array.isArray(value)) return `[${value.map((item) => jsonOf(item, keysOf)).join()}]`;
  const members = keysOf(value).map((key) => `${JSON.stringify(key)}:${jsonOf(value[key] ?? null, keysOf)}`);
  return `{${members.join()}}`;
}
