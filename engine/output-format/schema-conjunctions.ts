import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { tooLarge } from '../../shared/wire/output-format.js';
import { acceptsAny } from './character-automaton.js';
import { CONJUNCTIONS_LIMIT } from './format-limits.js';
import type {
  ArrayRule,
  JsonSchema,
  JsonType,
  KeyClass,
  ObjectRule,
  SchemaTarget,
  StringRule,
  TypedSchema,
  UnionSchema,
} from './json-schema.js';
import { allOf, NEVER, type ReadSchema, type ReadTarget, type ReadValues } from './read-schema.js';
import { requireExclusive } from './schema-overlaps.js';
import { commonNumbers, commonTexts, contradictionOf, requireFewClasses, schemaOfKey } from './schema-rules.js';

/**
 * The schema with its conjunctions made single schemas. They are made of the parts as they are written and found again by those parts, so that
 * conjunctions of schemas that refer to each other come to an end. Throws REQUEST_INVALID for a oneOf whose options may accept the same value.
 */
export function withoutConjunctions(root: ReadSchema): JsonSchema {
  return new Conjunctions().of(root);
}

/** The parts of a conjunction, without references and nested conjunctions. */
interface Flat {
  isNever: boolean;
  typed: TypedSchema<ReadSchema>[];
  values: ReadValues[];
  unions: UnionSchema<ReadSchema>[];
}

class Conjunctions {
  private readonly numbers = new Map<ReadSchema | ReadTarget, number>();
  /** By the numbers of the parts. */
  private readonly made = new Map<string, SchemaTarget>();
  private readonly targets = new Map<ReadTarget, SchemaTarget>();
  private readonly waiting: { parts: readonly ReadSchema[]; target: SchemaTarget }[] = [];
  private readonly exclusive: UnionSchema<JsonSchema>[] = [];

  of(root: ReadSchema): JsonSchema {
    const schema = this.inner([root]);
    for (const { parts, target } of this.waiting) target.schema = this.joined(parts);
    for (const union of this.exclusive) requireExclusive(union);
    return schema;
  }

  /** The schema of parts that stand inside another schema. References and conjunctions are made later. */
  private inner(given: readonly ReadSchema[]): JsonSchema {
    const parts = [...new Map(given.flatMap(partsOf).map((part) => [identityOf(part), part])).values()];
    const [first, second] = parts;
    if (first === undefined) return { kind: 'any' };
    if (second !== undefined) return { kind: 'reference', target: this.conjunction(parts) };
    return first.kind === 'reference'
      ? { kind: 'reference', target: this.targetOf(first.target) }
      : this.joined([first]);
  }

  private targetOf(read: ReadTarget): SchemaTarget {
    const known = this.targets.get(read);
    if (known !== undefined) return known;
    const target: SchemaTarget = { schema: null };
    this.targets.set(read, target);
    const schema = requirePresent(read.schema, 'The target of a $ref was not read.');
    this.waiting.push({ parts: [schema], target });
    return target;
  }

  private conjunction(parts: readonly ReadSchema[]): SchemaTarget {
    const key = parts
      .map((part) => this.numberOf(part))
      .sort((a, b) => a - b)
      .join(' ');
    const known = this.made.get(key);
    if (known !== undefined) return known;
    if (this.made.size >= CONJUNCTIONS_LIMIT) {
      throw tooLarge(`the JSON schema has over ${CONJUNCTIONS_LIMIT} conjunctions of allOf, anyOf, oneOf and $ref`);
    }
    const target: SchemaTarget = { schema: null };
    this.made.set(key, target);
    this.waiting.push({ parts, target });
    return target;
  }

  private numberOf(part: ReadSchema): number {
    const identity = identityOf(part);
    const number = this.numbers.get(identity) ?? this.numbers.size;
    this.numbers.set(identity, number);
    return number;
  }

  private joined(parts: readonly ReadSchema[]): JsonSchema {
    const [only] = parts;
    if (only?.kind === 'reference' && parts.length === 1) return this.inner(parts);
    const flat = flattened(parts);
    const { isNever, typed, values, unions } = flat;
    const [listed, ...otherLists] = values;
    if (isNever) return { kind: 'never' };
    if (listed !== undefined) {
      const conditions = [
        ...otherLists.map((others) => this.inner([others])),
        ...typed.map((one) => this.finished(one)),
        ...unions.map((union) => this.union(union, [])),
      ];
      return { kind: 'values', values: listed.values, conditions, where: listed.where };
    }
    const [union, ...otherUnions] = unions;
    if (union !== undefined) {
      const written = this.union(union, [...typed, ...otherUnions]);
      if (union.isExclusive) this.exclusive.push(written);
      return written;
    }
    const [first, ...others] = typed;
    if (first === undefined) return { kind: 'any' };
    return withoutEmptyTypes(this.finished(others.reduce((all, other) => commonTyped(all, other), first)));
  }

  /** The options, each with what must hold beside them. */
  private union(
    { options, isExclusive, where }: UnionSchema<ReadSchema>,
    beside: readonly ReadSchema[],
  ): UnionSchema<JsonSchema> {
    return { kind: 'union', options: options.map((option) => this.inner([option, ...beside])), isExclusive, where };
  }

  private finished(typed: TypedSchema<ReadSchema>): TypedSchema {
    const { array, object } = typed;
    const inner = (schema: ReadSchema): JsonSchema => this.inner([schema]);
    return {
      ...typed,
      array: { ...array, first: array.first.map(inner), items: inner(array.items) },
      object: {
        ...object,
        properties: new Map([...object.properties].map(([key, schema]) => [key, inner(schema)])),
        others: object.others.map((one) => ({ ...one, schema: inner(one.schema) })),
        names: inner(object.names),
      },
    };
  }
}

/** The parts of a conjunction, or the schema itself. */
function partsOf(schema: ReadSchema): readonly ReadSchema[] {
  if (schema.kind === 'any') return [];
  return schema.kind === 'all' ? schema.parts.flatMap(partsOf) : [schema];
}

/** Equal for references to the same target. */
function identityOf(part: ReadSchema): ReadSchema | ReadTarget {
  return part.kind === 'reference' ? part.target : part;
}

function flattened(parts: readonly ReadSchema[]): Flat {
  const flat: Flat = { isNever: false, typed: [], values: [], unions: [] };
  const seen = new Set<ReadSchema>();
  // `path`: the targets that led here. A target inside itself has no end, so no value meets it.
  const add = (part: ReadSchema, path: readonly ReadTarget[]): void => {
    if (part.kind === 'reference') {
      if (path.includes(part.target)) flat.isNever = true;
      else add(part.target.schema ?? NEVER, [...path, part.target]);
      return;
    }
    if (part.kind === 'all') return part.parts.forEach((inner) => add(inner, path));
    if (seen.has(part) || part.kind === 'any') return;
    seen.add(part);
    if (part.kind === 'never') flat.isNever = true;
    else if (part.kind === 'typed') flat.typed.push(part);
    else if (part.kind === 'values') flat.values.push(part);
    else flat.unions.push(part);
  };
  for (const part of parts) add(part, []);
  return flat;
}

/** The schema without the types whose keywords allow no value. */
function withoutEmptyTypes(schema: TypedSchema): JsonSchema {
  const types = [...schema.types].filter((type) => contradictionOf(schema, type) === null);
  return types.length === 0 ? { kind: 'never' } : { ...schema, types: new Set<JsonType>(types) };
}

function commonTyped(one: TypedSchema<ReadSchema>, other: TypedSchema<ReadSchema>): TypedSchema<ReadSchema> {
  const { where } = one;
  return {
    kind: 'typed',
    types: new Set([...one.types].filter((type) => other.types.has(type))),
    number: commonNumbers(one.number, other.number, where),
    string: commonStrings(one.string, other.string),
    array: commonArrays(one.array, other.array, where),
    object: commonObjects(one.object, other.object, where),
    where,
  };
}

function commonStrings(one: StringRule, other: StringRule): StringRule {
  return {
    least: Math.max(one.least, other.least),
    most: Math.min(one.most, other.most),
    pattern: commonTexts(one.pattern, other.pattern, one.where),
    where: one.where,
  };
}

function commonArrays(one: ArrayRule<ReadSchema>, other: ArrayRule<ReadSchema>, where: string): ArrayRule<ReadSchema> {
  const length = Math.max(one.first.length, other.first.length);
  const itemOf = ({ first, items }: ArrayRule<ReadSchema>, place: number): ReadSchema => first[place] ?? items;
  const counts = [one.least, other.least].filter((least) => least !== null);
  return {
    first: Array.from({ length }, (_, place) => allOf([itemOf(one, place), itemOf(other, place)], where)),
    items: allOf([one.items, other.items], where),
    isOpenByDefault: one.isOpenByDefault && other.isOpenByDefault,
    least: counts.length === 0 ? null : Math.max(...counts),
    most: Math.min(one.most, other.most),
  };
}

function commonObjects(
  one: ObjectRule<ReadSchema>,
  other: ObjectRule<ReadSchema>,
  where: string,
): ObjectRule<ReadSchema> {
  const keys = new Set([...one.properties.keys(), ...other.properties.keys()]);
  const classes = one.others.flatMap((first) =>
    other.others.flatMap((second): KeyClass<ReadSchema>[] => {
      const common = commonTexts(first.keys, second.keys, where);
      if (common !== null && !acceptsAny(common)) return [];
      const isDefault = first.isDefault && second.isDefault;
      return [{ keys: common, schema: allOf([first.schema, second.schema], where), isDefault }];
    }),
  );
  requireFewClasses(classes.length, where);
  return {
    properties: new Map([...keys].map((key) => [key, allOf([schemaOfKey(one, key), schemaOfKey(other, key)], where)])),
    required: new Set([...one.required, ...other.required]),
    others: classes,
    isClosed: one.isClosed || other.isClosed,
    names: allOf([one.names, other.names], where),
    least: Math.max(one.least, other.least),
    most: Math.min(one.most, other.most),
  };
}
