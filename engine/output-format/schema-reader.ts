import { formatInvalid } from '../../shared/wire/output-format.js';
import { automatonAccepts } from './character-automaton.js';
import { PROPERTIES_LIMIT, SCHEMA_DEPTH_LIMIT, SCHEMA_TEXT_LIMIT_BYTES } from './format-limits.js';
import {
  canonicalJson,
  readJsonValue,
  type JsonSchema,
  type JsonType,
  type JsonValue,
  type TypedSchema,
} from './json-schema.js';
import { patternAutomaton, type PatternWork } from './pattern-automaton.js';
import { allOf, ANY, NEVER, type ReadSchema, type ReadTarget } from './read-schema.js';
import { withoutConjunctions } from './schema-conjunctions.js';
import { ALL_TYPES, isAnnotation, isKnownKeyword, isTypedKeyword, KEYWORDS_OF_TYPE } from './schema-keywords.js';
import {
  contradictionOf,
  countOf,
  isObject,
  keyClasses,
  leastCount,
  mostCount,
  numberRule,
  stringRule,
  typesOf,
  wrong,
  type JsonObject,
} from './schema-rules.js';
import { isWrittenFormat } from './schema-formats.js';

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
  return withoutConjunctions(new SchemaReader(root, work).read());
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
  private readonly targets = new Map<JsonValue, ReadTarget>();
  private readonly waiting: { value: JsonValue; where: string; target: ReadTarget }[] = [];

  constructor(
    private readonly root: JsonValue,
    private readonly patternWork: PatternWork,
  ) {}

  read(): ReadSchema {
    const schema = this.readSchema(this.root, '$');
    for (const { value, where, target } of this.waiting) target.schema = this.readSchema(value, where);
    return schema;
  }

  private readSchema(value: JsonValue, where: string): ReadSchema {
    if (value === true) return ANY;
    if (value === false) return NEVER;
    if (!isObject(value)) throw formatInvalid(`${where} is no JSON schema: it must be an object, true or false`);
    for (const keyword of Object.keys(value)) {
      if (isKnownKeyword(keyword)) continue;
      throw formatInvalid(`the keyword ${shown(keyword)} at ${where} is not supported in a JSON schema; leave it out`);
    }
    if (value['nullable'] === true) return this.readNullable(value, where);
    const parts: ReadSchema[] = [];
    const { enum: listed, const: only, $ref: reference, anyOf, oneOf, allOf: joined, not } = value;
    const isListed = listed !== undefined || only !== undefined;
    if (isListed) parts.push(this.readValues(listed, only, where));
    if (Object.keys(value).some(isTypedKeyword)) parts.push(this.readTyped(value, where, !isListed));
    if (reference !== undefined) parts.push(this.readReference(reference, where));
    if (anyOf !== undefined) parts.push(this.readUnion(anyOf, 'anyOf', where));
    if (oneOf !== undefined) parts.push(this.readUnion(oneOf, 'oneOf', where));
    if (joined !== undefined) parts.push(...this.readList(joined, 'allOf', where));
    if (not !== undefined) parts.push(readNegation(not, where));
    return allOf(parts, where);
  }

  /** OpenAPI 3.0: null is added to `type`; without a type, to what the other keywords accept. */
  private readNullable(value: JsonObject, where: string): ReadSchema {
    const { type, ...others }: JsonObject = { ...value, nullable: false };
    if (type !== undefined) {
      return this.readSchema({ ...others, type: [...(Array.isArray(type) ? type : [type]), 'null'] }, where);
    }
    const rest = this.readSchema(others, where);
    if (rest.kind === 'any' || rest.kind === 'values') return rest;
    const none: ReadSchema = { kind: 'values', values: [null], where };
    return { kind: 'union', options: [rest, none], isExclusive: false, where };
  }

  /** The values that both enum and const name. */
  private readValues(listed: JsonValue | undefined, only: JsonValue | undefined, where: string): ReadSchema {
    if (listed !== undefined && !Array.isArray(listed)) throw wrong('enum', where, 'a list of values');
    const given = listed ?? [only ?? null];
    const values =
      only === undefined ? given : given.filter((candidate) => canonicalJson(candidate) === canonicalJson(only));
    return { kind: 'values', values, where };
  }

  private readReference(reference: JsonValue, where: string): ReadSchema {
    if (typeof reference !== 'string') throw wrong('$ref', where, 'a text');
    const found = this.found(reference);
    if (found === undefined) {
      throw formatInvalid(
        `$ref at ${where} is ${shown(reference)}; only "#" and what "#/..." leads to in the schema are supported`,
      );
    }
    const known = this.targets.get(found);
    if (known !== undefined) return { kind: 'reference', target: known };
    const target: ReadTarget = { schema: null };
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

  private readUnion(given: JsonValue, keyword: 'anyOf' | 'oneOf', where: string): ReadSchema {
    const options = this.readList(given, keyword, where);
    return { kind: 'union', options, isExclusive: keyword === 'oneOf', where };
  }

  private readList(given: JsonValue, keyword: string, where: string): ReadSchema[] {
    if (!Array.isArray(given) || given.length === 0) throw wrong(keyword, where, 'a list of at least one schema');
    return given.map((option, index) => this.readSchema(option, `${where}.${keyword}[${index}]`));
  }

  /** `infer`: without a type keyword, the types follow from the other keywords. Throws REQUEST_INVALID when no type is left then. */
  private readTyped(value: JsonObject, where: string, infer: boolean): ReadSchema {
    const named = value['type'] === undefined ? null : typesOf(value['type'], where);
    const meant = ALL_TYPES.filter((type) => KEYWORDS_OF_TYPE[type].some((keyword) => value[keyword] !== undefined));
    if (isWrittenFormat(value['format']) && !meant.includes('string')) meant.push('string');
    const types = new Set(named?.types ?? (infer && meant.length > 0 ? meant : ALL_TYPES));
    const schema: TypedSchema<ReadSchema> = {
      kind: 'typed',
      types,
      number: numberRule(value, where, named?.isInteger ?? false),
      string: stringRule(value, where, this.patternWork),
      array: this.arrayRule(value, where),
      object: this.objectRule(value, where),
      where,
    };
    return infer ? withoutContradictions(schema) : schema;
  }

  private arrayRule(value: JsonObject, where: string): TypedSchema<ReadSchema>['array'] {
    const { items, prefixItems, additionalItems, uniqueItems } = value;
    if (uniqueItems !== undefined && typeof uniqueItems !== 'boolean')
      throw wrong('uniqueItems', where, 'true or false');
    const isOld = Array.isArray(items);
    const given = isOld ? items : prefixItems;
    const first = given === undefined ? [] : this.readList(given, isOld ? 'items' : 'prefixItems', where);
    const behind = isOld ? additionalItems : items;
    return {
      first,
      items: this.readSchema(behind ?? true, `${where}.${isOld ? 'additionalItems' : 'items'}`),
      isOpenByDefault: behind === undefined && first.length > 0,
      least: countOf(value, 'minItems', where) === null ? null : leastCount(value, 'minItems', where),
      most: mostCount(value, 'maxItems', where),
    };
  }

  private objectRule(value: JsonObject, where: string): TypedSchema<ReadSchema>['object'] {
    const { required = [], additionalProperties, unevaluatedProperties } = value;
    const given = schemasByKey(value, 'properties', where);
    if (!Array.isArray(required) || !required.every((key) => typeof key === 'string')) {
      throw wrong('required', where, 'a list of texts');
    }
    if (given.length > PROPERTIES_LIMIT || required.length > PROPERTIES_LIMIT) {
      throw formatInvalid(`properties or required at ${where} has over ${PROPERTIES_LIMIT} keys; make it smaller`);
    }
    const patterns = schemasByKey(value, 'patternProperties', where).map(([source, inner]) => {
      const place = `${where}.patternProperties.${source}`;
      const keys = patternAutomaton(source, `the pattern at ${place}`, this.patternWork);
      return { keys, schema: this.readSchema(inner, place) };
    });
    const properties = new Map<string, ReadSchema>();
    for (const [key, inner] of given) {
      const own = this.readSchema(inner, `${where}.properties.${key}`);
      const matched = patterns.filter(({ keys }) => automatonAccepts(keys, key)).map(({ schema }) => schema);
      properties.set(key, allOf([own, ...matched], where));
    }
    if (unevaluatedProperties !== undefined && typeof unevaluatedProperties !== 'boolean') {
      throw wrong('unevaluatedProperties', where, 'true or false');
    }
    return {
      properties,
      required: new Set(required),
      others: keyClasses(
        patterns,
        {
          schema: this.readSchema(additionalProperties ?? true, `${where}.additionalProperties`),
          isDefault: additionalProperties === undefined,
        },
        (parts) => allOf(parts, where),
        where,
      ),
      isClosed: unevaluatedProperties === false,
      names: this.readSchema(value['propertyNames'] ?? true, `${where}.propertyNames`),
      least: leastCount(value, 'minProperties', where),
      most: mostCount(value, 'maxProperties', where),
    };
  }
}

/** The entries of a keyword that is an object of schemas. */
function schemasByKey(value: JsonObject, keyword: string, where: string): [string, JsonValue][] {
  const given = value[keyword] ?? {};
  if (!isObject(given)) throw wrong(keyword, where, 'an object of schemas');
  return Object.entries(given);
}

function readNegation(not: JsonValue, where: string): ReadSchema {
  const isEverything = not === true || (isObject(not) && Object.keys(not).every(isAnnotation));
  if (isEverything) return NEVER;
  if (not === false) return ANY;
  throw formatInvalid(`not at ${where} is supported with {}, true and false alone; say which values are allowed`);
}

function shown(text: string): string {
  return JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}...` : text);
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
 * and conjunctions show are found when the grammar is made.
 */
function withoutContradictions(schema: TypedSchema<ReadSchema>): ReadSchema {
  const found = [...schema.types].map((type) => ({ type, contradiction: contradictionOf(schema, type) }));
  const types = found.filter(({ contradiction }) => contradiction === null).map(({ type }) => type);
  if (types.length > 0) return { ...schema, types: new Set<JsonType>(types) };
  throw formatInvalid(
    `no value is taken at ${schema.where}: ${found[0]?.contradiction ?? 'it has no type'}; correct the schema`,
  );
}
