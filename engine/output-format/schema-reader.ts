import { formatInvalid } from '../../shared/wire/output-format.js';
import { patternAutomaton, type PatternWork } from './character-automaton.js';
import { LEAST_COUNT_LIMIT, PROPERTIES_LIMIT, SCHEMA_DEPTH_LIMIT, SCHEMA_TEXT_LIMIT_BYTES } from './format-limits.js';
import {
  canonicalJson,
  readJsonValue,
  type JsonSchema,
  type JsonType,
  type JsonValue,
  type SchemaTarget,
  type StringRule,
  type TypedSchema,
} from './json-schema.js';
import { ANY_NUMBER, type NumberRule, hasNumber } from './number-machine.js';

type JsonObject = Readonly<Record<string, JsonValue>>;

/** Keywords that do not change which values a schema accepts. */
const ANNOTATIONS: ReadonlySet<string> = new Set([
  'title',
  'description',
  'default',
  'examples',
  '$schema',
  '$id',
  '$comment',
  '$defs',
  'definitions',
  'deprecated',
  'readOnly',
  'writeOnly',
  'strict',
]);

/** Keywords by the type of value that they restrict. */
const KEYWORDS_OF_TYPE: Readonly<Record<JsonType, readonly string[]>> = {
  object: ['properties', 'required', 'additionalProperties'],
  array: ['items', 'minItems', 'maxItems'],
  string: ['minLength', 'maxLength', 'pattern'],
  number: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
  boolean: [],
  null: [],
};
const ALL_TYPES = Object.keys(KEYWORDS_OF_TYPE) as JsonType[];
const TYPED_KEYWORDS: ReadonlySet<string> = new Set(Object.values(KEYWORDS_OF_TYPE).flat());
const OTHER_KEYWORDS: ReadonlySet<string> = new Set(['type', 'enum', 'const', 'anyOf', '$ref']);

/**
 * Reads the text of a JSON schema. `work`: steps for the patterns of the whole format. Throws REQUEST_INVALID, which names the wrong or
 * unsupported keyword and its place.
 */
export function readJsonSchema(text: string, work: PatternWork): JsonSchema {
  if (Buffer.byteLength(text) > SCHEMA_TEXT_LIMIT_BYTES) {
    throw formatInvalid(`the JSON schema has over ${SCHEMA_TEXT_LIMIT_BYTES} bytes; make it smaller`);
  }
  let root: JsonValue;
  try {
    root = readJsonValue(text);
  } catch (thrown) {
    throw formatInvalid(`the JSON schema is no JSON: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
  }
  requireShallow(root, '$', 0);
  return new SchemaReader(root, work).read();
}

/** Throws for values that nest too deep, or contain a number that is too large for a double. */
function requireShallow(value: JsonValue, where: string, depth: number): void {
  const isNumber = typeof value === 'number' || typeof value === 'bigint';
  if (isNumber && !Number.isFinite(Number(value))) throw formatInvalid(`${where} is too large a number`);
  if (typeof value !== 'object' || value === null) return;
  if (depth >= SCHEMA_DEPTH_LIMIT * 2) {
    throw formatInvalid(`the JSON schema nests deeper than ${SCHEMA_DEPTH_LIMIT} schemas at ${where}; make it flatter`);
  }
  for (const [key, inner] of Object.entries(value)) requireShallow(inner, `${where}.${key}`, depth + 1);
}

class SchemaReader {
  /** The targets of $ref, by the object of the schema that it names. */
  private readonly targets = new Map<JsonValue, SchemaTarget>();
  private readonly waiting: { value: JsonValue; where: string; target: SchemaTarget }[] = [];

  constructor(
    private readonly root: JsonValue,
    private readonly patternWork: PatternWork,
  ) {}

  read(): JsonSchema {
    const schema = this.readSchema(this.root, '$');
    for (const { value, where, target } of this.waiting) target.schema = this.readSchema(value, where);
    return schema;
  }

  private readSchema(value: JsonValue, where: string): JsonSchema {
    if (value === true) return { kind: 'any' };
    if (value === false) return { kind: 'never' };
    if (!isObject(value)) throw formatInvalid(`${where} is no JSON schema: it must be an object, true or false`);
    for (const keyword of Object.keys(value)) {
      if (ANNOTATIONS.has(keyword) || TYPED_KEYWORDS.has(keyword) || OTHER_KEYWORDS.has(keyword)) continue;
      throw formatInvalid(`the keyword ${shown(keyword)} at ${where} is not supported in a JSON schema; leave it out`);
    }
    if (value['enum'] !== undefined || value['const'] !== undefined) return this.readValues(value, where);
    if (value['$ref'] !== undefined) {
      requireAlone(value, '$ref', where);
      return this.readReference(value['$ref'], where);
    }
    if (value['anyOf'] !== undefined) return this.readUnion(value, where);
    return this.readTyped(value, where);
  }

  /** The values of enum and const that the other keywords accept. */
  private readValues(value: JsonObject, where: string): JsonSchema {
    const { enum: listed, const: only, ...others } = value;
    if (listed !== undefined && !Array.isArray(listed)) throw wrong('enum', where, 'a list of values');
    const given = listed ?? [only ?? null];
    const values =
      only === undefined ? given : given.filter((candidate) => canonicalJson(candidate) === canonicalJson(only));
    return { kind: 'values', values, conditions: this.conditionsOf(others, where), where };
  }

  /** The conditions that a value must meet beside enum and const. */
  private conditionsOf(others: JsonObject, where: string): JsonSchema[] {
    const { $ref: reference, anyOf, ...typed } = others;
    const conditions: JsonSchema[] = [this.typedOf(typed, where, false)];
    if (reference !== undefined) conditions.push(this.readReference(reference, where));
    if (anyOf !== undefined) conditions.push(this.readUnion({ anyOf }, where));
    return conditions;
  }

  private readReference(reference: JsonValue | undefined, where: string): JsonSchema {
    if (typeof reference !== 'string') throw wrong('$ref', where, 'a text');
    const found = this.found(reference);
    if (found === undefined) {
      throw formatInvalid(
        `$ref at ${where} is ${shown(reference)}; only "#" and what "#/..." leads to in the schema are supported`,
      );
    }
    const known = this.targets.get(found);
    if (known !== undefined) return { kind: 'reference', target: known };
    const target: SchemaTarget = { schema: null };
    if (typeof found === 'object') this.targets.set(found, target);
    this.waiting.push({ value: found, where: reference.replace(/^#/, '$').replaceAll('/', '.'), target });
    return { kind: 'reference', target };
  }

  private found(reference: string): JsonValue | undefined {
    if (reference !== '#' && !reference.startsWith('#/')) return undefined;
    let at: JsonValue | undefined = this.root;
    for (const step of reference.split('/').slice(1)) {
      const key = decodedStep(step);
      if (typeof at !== 'object' || at === null || key === null || !Object.hasOwn(at, key)) return undefined;
      at = (at as JsonObject)[key];
    }
    return at;
  }

  private readUnion(value: JsonObject, where: string): JsonSchema {
    const { anyOf, type, ...rest } = value;
    if (!Array.isArray(anyOf) || anyOf.length === 0) throw wrong('anyOf', where, 'a list of at least one schema');
    requireAlone({ ...rest, anyOf }, 'anyOf', where);
    const options = anyOf.map((option, index) => {
      const inner = `${where}.anyOf[${index}]`;
      return this.readSchema(type === undefined ? option : withType(option, type, inner), inner);
    });
    return { kind: 'union', options };
  }

  private readTyped(value: JsonObject, where: string): JsonSchema {
    const hasKeywords =
      value['type'] !== undefined || Object.keys(value).some((keyword) => TYPED_KEYWORDS.has(keyword));
    if (!hasKeywords) return { kind: 'any' };
    return withoutContradictions(this.typedOf(value, where, true), where);
  }

  /** `infer`: without a type keyword, the types follow from the other keywords. */
  private typedOf(value: JsonObject, where: string, infer: boolean): TypedSchema {
    const named = value['type'] === undefined ? null : typesOf(value['type'], where);
    const meant = ALL_TYPES.filter((type) => KEYWORDS_OF_TYPE[type].some((keyword) => value[keyword] !== undefined));
    const types = new Set(named?.types ?? (infer && meant.length > 0 ? meant : ALL_TYPES));
    return {
      kind: 'typed',
      types,
      number: numberRule(value, where, named?.isInteger ?? false),
      string: stringRule(value, where, this.patternWork),
      array: {
        items: this.readSchema(value['items'] ?? true, `${where}.items`),
        least: leastCount(value, 'minItems', where),
        most: mostCount(value, 'maxItems', where),
      },
      object: this.objectRule(value, where),
    };
  }

  private objectRule(value: JsonObject, where: string): TypedSchema['object'] {
    const { properties: given = {}, required = [], additionalProperties: others } = value;
    if (!isObject(given)) throw wrong('properties', where, 'an object of schemas');
    if (!Array.isArray(required) || !required.every((key) => typeof key === 'string')) {
      throw wrong('required', where, 'a list of texts');
    }
    if (Object.keys(given).length > PROPERTIES_LIMIT || required.length > PROPERTIES_LIMIT) {
      throw formatInvalid(`properties or required at ${where} has over ${PROPERTIES_LIMIT} keys; make it smaller`);
    }
    const properties = new Map<string, JsonSchema>();
    for (const [key, inner] of Object.entries(given))
      properties.set(key, this.readSchema(inner, `${where}.properties.${key}`));
    return {
      properties,
      required: new Set(required),
      others: this.readSchema(others ?? true, `${where}.additionalProperties`),
      isOpenByDefault: others === undefined,
    };
  }
}

function isObject(value: JsonValue | undefined): value is Record<string, JsonValue> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function wrong(keyword: string, where: string, must: string): Error {
  return formatInvalid(`${keyword} at ${where} is wrong; it must be ${must}`);
}

function shown(text: string): string {
  return JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}...` : text);
}

/** Allows only annotations beside $ref and anyOf: a conjunction with other keywords is not supported. */
function requireAlone(value: JsonObject, keyword: string, where: string): void {
  const beside = Object.keys(value).find((key) => key !== keyword && !ANNOTATIONS.has(key));
  if (beside === undefined) return;
  throw formatInvalid(`${beside} beside ${keyword} at ${where} is not supported; move it into what ${keyword} names`);
}

/** The option, restricted to the type that is given beside anyOf. */
function withType(option: JsonValue, type: JsonValue, where: string): JsonValue {
  if (option === true) return { type };
  if (!isObject(option)) return option;
  if (option['anyOf'] !== undefined || option['$ref'] !== undefined) {
    throw formatInvalid(
      `type beside anyOf is not supported where an option has anyOf or $ref (${where}); move it into the options`,
    );
  }
  const outer = typesOf(type, where);
  if (option['type'] === undefined) return { ...option, type };
  const inner = typesOf(option['type'], where);
  const both = [...inner.types].filter((candidate) => outer.types.has(candidate));
  if (both.length === 0) return false;
  const isInteger = inner.isInteger || outer.isInteger;
  return { ...option, type: both.map((name) => (name === 'number' && isInteger ? 'integer' : name)) };
}

function typesOf(type: JsonValue, where: string): { types: Set<JsonType>; isInteger: boolean } {
  const names = Array.isArray(type) ? type : [type];
  const known = [...ALL_TYPES, 'integer'];
  if (names.length === 0 || !names.every((name) => typeof name === 'string' && known.includes(name))) {
    throw wrong('type', where, `one or a list of ${known.join(', ')}`);
  }
  const types = new Set(names.map((name) => (name === 'integer' ? 'number' : name) as JsonType));
  return { types, isInteger: names.includes('integer') && !names.includes('number') };
}

function numberRule(value: JsonObject, where: string, isInteger: boolean): NumberRule {
  const bound = (keyword: string): number | bigint | null => {
    const given = value[keyword];
    if (given === undefined) return null;
    if (typeof given !== 'number' && typeof given !== 'bigint') throw wrong(keyword, where, 'a number');
    return given;
  };
  const [least, above] = [bound('minimum'), bound('exclusiveMinimum')];
  const [most, below] = [bound('maximum'), bound('exclusiveMaximum')];
  const isLeastExcluded = above !== null && (least === null || above >= least);
  const isMostExcluded = below !== null && (most === null || below <= most);
  return {
    isInteger,
    least: (isLeastExcluded ? above : least) ?? ANY_NUMBER.least,
    isLeastExcluded,
    most: (isMostExcluded ? below : most) ?? ANY_NUMBER.most,
    isMostExcluded,
  };
}

function stringRule(value: JsonObject, where: string, work: PatternWork): StringRule {
  const pattern = value['pattern'];
  if (pattern !== undefined && typeof pattern !== 'string') throw wrong('pattern', where, 'a text');
  return {
    least: leastCount(value, 'minLength', where),
    most: mostCount(value, 'maxLength', where),
    pattern: pattern === undefined ? null : patternAutomaton(pattern, `the pattern at ${where}`, work),
    where: `the pattern at ${where}`,
  };
}

function count(value: JsonObject, keyword: string, where: string): number | null {
  const written = value[keyword];
  if (written === undefined) return null;
  const given = typeof written === 'bigint' ? Number(written) : written;
  if (typeof given !== 'number' || !Number.isInteger(given) || given < 0)
    throw wrong(keyword, where, 'a whole number from 0 on');
  return given;
}

function leastCount(value: JsonObject, keyword: string, where: string): number {
  const least = count(value, keyword, where) ?? 0;
  if (least > LEAST_COUNT_LIMIT) throw wrong(keyword, where, `at most ${LEAST_COUNT_LIMIT}`);
  return least;
}

function mostCount(value: JsonObject, keyword: string, where: string): number {
  return count(value, keyword, where) ?? Infinity;
}

/** One step of a JSON pointer in a URI; null: invalid. */
function decodedStep(step: string): string | null {
  try {
    return decodeURIComponent(step).replaceAll('~1', '/').replaceAll('~0', '~');
  } catch {
    return null;
  }
}

/**
 * The schema without the types whose keywords allow no value. Throws REQUEST_INVALID when no type is left. Contradictions that only references
 * show are found when the grammar is made.
 */
function withoutContradictions(schema: TypedSchema, where: string): JsonSchema {
  const contradictions = [...schema.types].map((type) => ({ type, contradiction: contradictionOf(schema, type) }));
  const types = contradictions.filter(({ contradiction }) => contradiction === null).map(({ type }) => type);
  if (types.length > 0) return { ...schema, types: new Set(types) };
  const [first] = contradictions;
  throw formatInvalid(`no value is taken at ${where}: ${first?.contradiction ?? 'it has no type'}; correct the schema`);
}

function contradictionOf({ number, string, array, object }: TypedSchema, type: JsonType): string | null {
  switch (type) {
    case 'number':
      return hasNumber(number) ? null : 'no number lies within its bounds';
    case 'string':
      return string.least > string.most ? `minLength ${string.least} is above maxLength ${string.most}` : null;
    case 'array':
      return array.least > array.most ? `minItems ${array.least} is above maxItems ${array.most}` : null;
    case 'object': {
      const missing = [...object.required].find(
        (key) => (object.properties.get(key) ?? object.others).kind === 'never',
      );
      return missing === undefined
        ? null
        : `the key ${JSON.stringify(missing.slice(0, 60))} is required and not allowed`;
    }
    case 'boolean':
    case 'null':
      return null;
  }
}
