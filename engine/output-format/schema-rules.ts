import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { formatInvalid, tooLarge } from '../../shared/wire/output-format.js';
import { acceptsAny, automatonAccepts, both, otherThan, type CharacterAutomaton } from './character-automaton.js';
import { KEY_CLASSES_LIMIT, LEAST_COUNT_LIMIT, MULTIPLE_OF_DIGITS, MULTIPLE_OF_LIMIT } from './format-limits.js';
import type { JsonType, JsonValue, KeyClass, ObjectRule, StringRule, TypedSchema } from './json-schema.js';
import { ANY_NUMBER, hasNumber, type NumberRule } from './number-machine.js';
import { commonMultiple, decimalOf, type Decimal } from './number-multiples.js';
import { patternAutomaton, type PatternWork } from './pattern-automaton.js';
import { formatAutomaton } from './schema-formats.js';
import { ALL_TYPES } from './schema-keywords.js';

export type JsonObject = Readonly<Record<string, JsonValue>>;

const ONE: Decimal = { digits: 1n, fractionDigits: 0 };

export function isObject(value: JsonValue | undefined): value is Record<string, JsonValue> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** REQUEST_INVALID for a keyword with a wrong value. */
export function wrong(keyword: string, where: string, must: string): Error {
  return formatInvalid(`${keyword} at ${where} is wrong; it must be ${must}`);
}

/** The types that `type` names. */
export function typesOf(type: JsonValue, where: string): { types: Set<JsonType>; isInteger: boolean } {
  const names = Array.isArray(type) ? type : [type];
  const known = [...ALL_TYPES, 'integer'];
  if (names.length === 0 || !names.every((name) => typeof name === 'string' && known.includes(name))) {
    throw wrong('type', where, `one or a list of ${known.join(', ')}`);
  }
  const types = new Set(names.map((name) => (name === 'integer' ? 'number' : name) as JsonType));
  return { types, isInteger: names.includes('integer') && !names.includes('number') };
}

export function numberRule(value: JsonObject, where: string, isInteger: boolean): NumberRule {
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
  const rule = {
    isInteger,
    least: (isLeastExcluded ? above : least) ?? ANY_NUMBER.least,
    isLeastExcluded,
    most: (isMostExcluded ? below : most) ?? ANY_NUMBER.most,
    isMostExcluded,
  };
  return withMultiple(rule, multipleOf(bound('multipleOf'), where), where);
}

function multipleOf(given: number | bigint | null, where: string): Decimal | null {
  if (given === null) return null;
  if (given <= 0) throw wrong('multipleOf', where, 'a number above 0');
  return decimalOf(given);
}

/** The rule for multiples of a number. Whole multiples and integers are made one rule. Throws REQUEST_INVALID if it needs too many states. */
function withMultiple(rule: Omit<NumberRule, 'multipleOf'>, given: Decimal | null, where: string): NumberRule {
  if (given === null) return { ...rule, multipleOf: null };
  const multiple = rule.isInteger ? commonMultiple(given, ONE) : given;
  if (multiple.fractionDigits > MULTIPLE_OF_DIGITS || multiple.digits > BigInt(MULTIPLE_OF_LIMIT)) {
    throw tooLarge(
      `multipleOf at ${where} has over ${MULTIPLE_OF_DIGITS} digits behind the point, or over ${MULTIPLE_OF_LIMIT} units of its last digit`,
    );
  }
  return { ...rule, isInteger: rule.isInteger || multiple.fractionDigits === 0, multipleOf: multiple };
}

/** The numbers that both rules accept. Throws REQUEST_INVALID as numberRule does. */
export function commonNumbers(one: NumberRule, other: NumberRule, where: string): NumberRule {
  const isLeastOfOther = other.least > one.least || (other.least === one.least && other.isLeastExcluded);
  const isMostOfOther = other.most < one.most || (other.most === one.most && other.isMostExcluded);
  const [lower, upper] = [isLeastOfOther ? other : one, isMostOfOther ? other : one];
  const rule = {
    isInteger: one.isInteger || other.isInteger,
    least: lower.least,
    isLeastExcluded: lower.isLeastExcluded,
    most: upper.most,
    isMostExcluded: upper.isMostExcluded,
  };
  const [first, second] = [one.multipleOf, other.multipleOf];
  return withMultiple(
    rule,
    first === null || second === null ? (first ?? second) : commonMultiple(first, second),
    where,
  );
}

/** `work`: steps for the patterns of the whole format. */
export function stringRule(value: JsonObject, where: string, work: PatternWork): StringRule {
  const { pattern, format } = value;
  if (pattern !== undefined && typeof pattern !== 'string') throw wrong('pattern', where, 'a text');
  if (format !== undefined && typeof format !== 'string') throw wrong('format', where, 'a text');
  const place = `the pattern at ${where}`;
  return {
    least: leastCount(value, 'minLength', where),
    most: mostCount(value, 'maxLength', where),
    pattern: commonTexts(
      pattern === undefined ? null : patternAutomaton(pattern, place, work),
      format === undefined ? null : formatAutomaton(format),
      place,
    ),
    where: place,
  };
}

/** Accepts the texts that both accept; null: any text. */
export function commonTexts(
  one: CharacterAutomaton | null,
  other: CharacterAutomaton | null,
  where: string,
): CharacterAutomaton | null {
  return one === null || other === null ? (one ?? other) : both(one, other, where);
}

/** The classes of keys that are no listed properties. `patterns`: patternProperties. `others`: schema of the keys that no pattern matches. */
export function keyClasses<Inner>(
  patterns: readonly { keys: CharacterAutomaton; schema: Inner }[],
  others: { schema: Inner; isDefault: boolean },
  all: (parts: readonly Inner[]) => Inner,
  where: string,
): KeyClass<Inner>[] {
  let classes: { keys: CharacterAutomaton | null; schemas: readonly Inner[] }[] = [{ keys: null, schemas: [] }];
  for (const { keys, schema } of patterns) {
    const outside = otherThan(keys);
    classes = classes.flatMap((one) => [
      { keys: commonTexts(one.keys, keys, where), schemas: [...one.schemas, schema] },
      { keys: commonTexts(one.keys, outside, where), schemas: one.schemas },
    ]);
    classes = classes.filter((one) => one.keys === null || acceptsAny(one.keys));
    requireFewClasses(classes.length, where);
  }
  return classes.map(({ keys, schemas }) =>
    schemas.length === 0 ? { keys, ...others } : { keys, schema: all(schemas), isDefault: false },
  );
}

/** Throws REQUEST_INVALID for too many classes of keys. */
export function requireFewClasses(count: number, where: string): void {
  if (count <= KEY_CLASSES_LIMIT) return;
  throw tooLarge(`patternProperties at ${where} divide the keys into over ${KEY_CLASSES_LIMIT} kinds`);
}

/** A count of a keyword; null: not given. */
export function countOf(value: JsonObject, keyword: string, where: string): number | null {
  const written = value[keyword];
  if (written === undefined) return null;
  const given = typeof written === 'bigint' ? Number(written) : written;
  if (typeof given !== 'number' || !Number.isInteger(given) || given < 0)
    throw wrong(keyword, where, 'a whole number from 0 on');
  return given;
}

export function leastCount(value: JsonObject, keyword: string, where: string): number {
  const least = countOf(value, keyword, where) ?? 0;
  if (least > LEAST_COUNT_LIMIT) throw wrong(keyword, where, `at most ${LEAST_COUNT_LIMIT}`);
  return least;
}

export function mostCount(value: JsonObject, keyword: string, where: string): number {
  return countOf(value, keyword, where) ?? Infinity;
}

/** The reason why a type's keywords allow no value; null: they allow some, as far as this schema alone tells. */
export function contradictionOf<Inner extends { kind: string }>(
  { number, string, array, object }: TypedSchema<Inner>,
  type: JsonType,
): string | null {
  switch (type) {
    case 'number':
      return hasNumber(number) ? null : 'no number lies within its bounds';
    case 'string':
      return string.least > string.most ? `minLength ${string.least} is above maxLength ${string.most}` : null;
    case 'array':
      return (array.least ?? 0) > array.most ? `minItems ${array.least} is above maxItems ${array.most}` : null;
    case 'object': {
      if (object.least > object.most) return `minProperties ${object.least} is above maxProperties ${object.most}`;
      const missing = [...object.required].find((key) => schemaOfKey(object, key).kind === 'never');
      return missing === undefined
        ? null
        : `the key ${JSON.stringify(missing.slice(0, 60))} is required and not allowed`;
    }
    case 'boolean':
    case 'null':
      return null;
  }
}

/** The schema of a key's value. */
export function schemaOfKey<Inner>(rule: ObjectRule<Inner>, key: string): Inner {
  return rule.properties.get(key) ?? classOfKey(rule, key).schema;
}

/** The class of a key that is no listed property. */
export function classOfKey<Inner>({ others }: ObjectRule<Inner>, key: string): KeyClass<Inner> {
  const found = others.find(({ keys }) => keys === null || automatonAccepts(keys, key));
  return requirePresent(found, 'A key belongs to no class of keys.');
}
