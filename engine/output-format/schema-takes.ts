import { automatonAccepts } from './character-automaton.js';
import {
  canonicalJson,
  type JsonSchema,
  type JsonType,
  type JsonValue,
  type ObjectRule,
  type SchemaTarget,
  type TypedSchema,
} from './json-schema.js';
import { isInNumberRule } from './number-machine.js';
import { classOfKey, schemaOfKey } from './schema-rules.js';

/** True if a schema accepts a value by the standard. A valid value may still be one that answers are never written with. */
export function schemaTakes(schema: JsonSchema, value: JsonValue): boolean {
  return new SchemaJudge().takes(schema, value);
}

class SchemaJudge {
  /** Results for values at a $ref. A result is false while it is computed, so a circle of references accepts nothing. */
  private readonly known = new Map<SchemaTarget, Map<JsonValue, boolean>>();

  takes(schema: JsonSchema, value: JsonValue): boolean {
    switch (schema.kind) {
      case 'any':
        return true;
      case 'never':
        return false;
      case 'values': {
        const text = canonicalJson(value);
        const isListed = schema.values.some((listed) => canonicalJson(listed) === text);
        return isListed && schema.conditions.every((condition) => this.takes(condition, value));
      }
      case 'union':
        return schema.isExclusive
          ? schema.options.filter((option) => this.takes(option, value)).length === 1
          : schema.options.some((option) => this.takes(option, value));
      case 'reference':
        return this.takesAtReference(schema.target, value);
      case 'typed':
        return this.takesTyped(schema, value);
    }
  }

  private takesAtReference(target: SchemaTarget, value: JsonValue): boolean {
    const known = this.known.get(target) ?? new Map<JsonValue, boolean>();
    this.known.set(target, known);
    const found = known.get(value);
    if (found !== undefined) return found;
    known.set(value, false);
    const takes = target.schema !== null && this.takes(target.schema, value);
    known.set(value, takes);
    return takes;
  }

  private takesTyped({ types, number, string, array, object }: TypedSchema, value: JsonValue): boolean {
    if (!types.has(typeOf(value))) return false;
    if (typeof value === 'number' || typeof value === 'bigint') return isInNumberRule(value, number);
    if (typeof value === 'string') {
      const length = [...value].length;
      const fits = length >= string.least && length <= string.most;
      return fits && (string.pattern === null || automatonAccepts(string.pattern, value));
    }
    if (typeof value !== 'object' || value === null) return true;
    if (Array.isArray(value)) {
      const fits = value.length >= (array.least ?? 0) && value.length <= array.most;
      return fits && value.every((item, place) => this.takes(array.first[place] ?? array.items, item));
    }
    return this.takesObject(object, value);
  }

  private takesObject(object: ObjectRule, value: Readonly<Record<string, JsonValue>>): boolean {
    const entries = Object.entries(value);
    if (entries.length < object.least || entries.length > object.most) return false;
    if (![...object.required].every((key) => Object.hasOwn(value, key))) return false;
    return entries.every(([key, inner]) => {
      const isMentioned = object.properties.has(key) || !classOfKey(object, key).isDefault;
      if (object.isClosed && !isMentioned) return false;
      return this.takes(object.names, key) && this.takes(schemaOfKey(object, key), inner);
    });
  }
}

function typeOf(value: JsonValue): JsonType {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  const type = typeof value === 'bigint' ? 'number' : typeof value;
  return type === 'string' || type === 'number' || type === 'boolean' ? type : 'object';
}
