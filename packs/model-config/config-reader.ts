import { MissingPartError } from './refused-model.js';
import { basename } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { printableJson, printableLine } from '../../shared/base/text/printable-text.js';
import { SIZE_LIMIT } from '../../shared/model/model-shape.js';

/** Methods of quantization, by which checkpoints' weights are shipped: quant_method of config.json. */
export const QUANTIZATIONS = [
  'none',
  'fp8',
  'mxfp4',
  'compressed-tensors',
  'modelopt',
  'fbgemm_fp8',
  'gptq',
  'awq',
] as const;
export type Quantization = (typeof QUANTIZATIONS)[number];

/** Facts about a config.json that are known before its family reads it. */
export interface ConfigContext {
  /** Path of the file, for messages. */
  path: string;
  /** True: a rope that changes with the length (longrope) uses its long factors, not its short ones. */
  longContext: boolean;
  quantization: Quantization;
}

/** One object of config.json, or a part of one. */
interface ConfigObject {
  values: Readonly<Record<string, unknown>>;
  /** Prefix of its keys in messages: "text_config."; null: the values are not from a file. */
  prefix: string | null;
  /** Other objects may give other values for its keys; theirs are used. */
  isFallback: boolean;
}

/** Records the values of a config.json that were read. All others must be explained (unread-keys.ts). */
export class ConfigUsage {
  /** Paths of values that were read: "text_config.hidden_size". */
  readonly read = new Set<string>();
  /** Paths of objects whose values are read one by one. */
  readonly entered = new Set<string>();
}

/** -1 stands there in files of programs that mean no token by it. */
const TOKEN_IDS_WANTED = `a token id or a list of them (whole numbers from 0 to ${SIZE_LIMIT}; tokenizer.json gives each token's id), or null if there is no such token`;

interface Found {
  key: string;
  value: unknown;
  prefix: string;
}

/**
 * The values of config.json, each checked as it is read. A null value counts as absent. Several keys: older and newer names of one value, which
 * may be in several objects; all that are present must agree. Errors name the file, the key and the value.
 */
export class ConfigReader {
  private readonly objects: readonly ConfigObject[];

  constructor(
    values: Readonly<Record<string, unknown>>,
    readonly context: ConfigContext,
    readonly usage = new ConfigUsage(),
    /** Objects in order of priority, the highest first. */
    objects?: readonly ConfigObject[],
  ) {
    this.objects = objects ?? [{ values, prefix: '', isFallback: false }];
  }

  has(...keys: string[]): boolean {
    return this.find(keys) !== null;
  }

  /** True if the key is present with the value null: transformers then uses no value, while an absent key has a default. */
  isNull(key: string): boolean {
    const holder = this.objects.find(({ values }) => Object.hasOwn(values, key));
    return holder !== undefined && holder.values[key] === null;
  }

  isText(key: string): boolean {
    return typeof this.find([key])?.value === 'string';
  }

  isList(key: string): boolean {
    return Array.isArray(this.find([key])?.value);
  }

  /** A whole number of at least 1. */
  size(...keys: string[]): number {
    return this.require(keys, this.sizeOr(null, ...keys));
  }

  sizeOr<T extends number | null>(fallback: T, ...keys: string[]): number | T {
    return this.whole(fallback, 1, keys);
  }

  /** A whole number of at least 0. */
  countOr<T extends number | null>(fallback: T, ...keys: string[]): number | T {
    return this.whole(fallback, 0, keys);
  }

  /** If the number has a default, null is refused, because transformers would compute with null. */
  numberOr<T extends number | null>(fallback: T, ...keys: string[]): number | T {
    const found = this.find(keys);
    if (found === null) {
      if (fallback !== null) for (const key of keys) this.notNull(key);
      return fallback;
    }
    if (typeof found.value !== 'number' || !Number.isFinite(found.value)) throw this.wrong(found, 'a number');
    return found.value;
  }

  /** A number above 0. */
  positiveOr<T extends number | null>(fallback: T, ...keys: string[]): number | T {
    const value = this.numberOr(fallback, ...keys);
    if (value !== null && !(value > 0)) throw this.wrong({ key: this.keyOf(keys), value }, 'a number above 0');
    return value;
  }

  /** If the flag is on by default, null is refused, because transformers takes null for false. */
  flagOr(fallback: boolean, ...keys: string[]): boolean {
    const found = this.find(keys);
    if (found === null) {
      if (fallback) for (const key of keys) this.notNull(key);
      return fallback;
    }
    if (typeof found.value !== 'boolean') throw this.wrong(found, 'true or false');
    return found.value;
  }

  textOr<T extends string | null>(fallback: T, ...keys: string[]): string | T {
    const found = this.find(keys);
    if (found === null) return fallback;
    if (typeof found.value !== 'string') throw this.wrong(found, 'a text');
    return found.value;
  }

  /** A list of finite numbers. */
  numbersOr<T extends readonly number[] | null>(fallback: T, ...keys: string[]): number[] | T {
    const found = this.find(keys);
    if (found === null) return fallback;
    if (!Array.isArray(found.value)) throw this.wrong(found, 'a list of numbers');
    const list: readonly unknown[] = found.value;
    return list.map((item) => {
      if (typeof item !== 'number' || !Number.isFinite(item)) throw this.wrong(found, 'a list of numbers');
      return item;
    });
  }

  /** A list of finite numbers and nulls. */
  numbersOrNullsOr<T extends readonly (number | null)[] | null>(fallback: T, ...keys: string[]): (number | null)[] | T {
    const found = this.find(keys);
    if (found === null) return fallback;
    if (!Array.isArray(found.value)) throw this.wrong(found, 'a list of numbers and nulls');
    const list: readonly unknown[] = found.value;
    return list.map((item) => {
      if (item !== null && (typeof item !== 'number' || !Number.isFinite(item))) {
        throw this.wrong(found, 'a list of numbers and nulls');
      }
      return item;
    });
  }

  flagsOr<T extends readonly boolean[] | null>(fallback: T, ...keys: string[]): boolean[] | T {
    const found = this.find(keys);
    if (found === null) return fallback;
    if (!Array.isArray(found.value)) throw this.wrong(found, 'a list of true and false');
    const list: readonly unknown[] = found.value;
    return list.map((item) => {
      if (typeof item !== 'boolean') throw this.wrong(found, 'a list of true and false');
      return item;
    });
  }

  textsOr<T extends readonly string[] | null>(fallback: T, ...keys: string[]): string[] | T {
    const found = this.find(keys);
    if (found === null) return fallback;
    if (!Array.isArray(found.value)) throw this.wrong(found, 'a list of texts');
    const list: readonly unknown[] = found.value;
    return list.map((item) => {
      if (typeof item !== 'string') throw this.wrong(found, 'a list of texts');
      return item;
    });
  }

  /** One whole number, or a list of them, joined from all objects. */
  tokenIds(key: string): number[] {
    const ids = this.objects.flatMap(({ values, prefix }) => {
      const found = this.withObjects([{ values, prefix, isFallback: false }]).find([key]);
      if (found === null) return [];
      const list: readonly unknown[] = Array.isArray(found.value) ? found.value : [found.value];
      return list.map((item) => {
        if (!isWhole(item, 0)) throw this.wrong(found, TOKEN_IDS_WANTED);
        return item;
      });
    });
    return [...new Set(ids)];
  }

  /** Keys whose values are objects. */
  objectKeys(): string[] {
    const [first] = this.objects;
    return Object.entries(first?.values ?? {}).flatMap(([key, value]) => (isObject(value) ? [key] : []));
  }

  /** Refuses objects inside this one. */
  noObjects(supported: string): void {
    const [key] = this.objectKeys();
    if (key !== undefined) throw this.unsupported(key, this.find([key])?.value, supported);
  }

  /** The object under a key; null: there is none. */
  within(key: string): ConfigReader | null {
    const found = this.find([key]);
    if (found === null) return null;
    if (!isObject(found.value)) throw this.wrong(found, 'an object');
    this.usage.entered.add(`${found.prefix}${key}`);
    return this.withObjects([{ values: found.value, prefix: `${found.prefix}${key}.`, isFallback: false }]);
  }

  /** A reader of the values of this reader and another one. If both have a key, the values must agree. */
  beside(other: ConfigReader | null): ConfigReader {
    return other === null ? this : this.withObjects([...other.objects, ...this.objects]);
  }

  /** A reader of the values of this reader and another one. If both have a key, the other one's value is used. */
  overlaid(other: ConfigReader | null): ConfigReader {
    if (other === null) return this;
    return this.withObjects([...other.objects, ...this.objects.map((object) => ({ ...object, isFallback: true }))]);
  }

  /** A reader of only these keys. */
  picked(...keys: string[]): ConfigReader {
    return this.withObjects(
      this.objects.map((object) => ({
        ...object,
        values: Object.fromEntries(Object.entries(object.values).filter(([key]) => keys.includes(key))),
      })),
    );
  }

  /** A reader with values for absent keys. */
  withFallbacks(fallbacks: Readonly<Record<string, unknown>>): ConfigReader {
    return this.withObjects([...this.objects, { values: fallbacks, prefix: null, isFallback: true }]);
  }

  /** Marks keys that have no effect because of the values of other keys. */
  idle(...keys: string[]): void {
    for (const key of keys) for (const { prefix } of this.objects) this.usage.read.add(`${prefix ?? ''}${key}`);
  }

  /** Refuses a key that repeats other values if it contradicts them. */
  repeats(key: string, expected: number): void {
    const found = this.find([key]);
    if (found !== null && found.value !== expected) throw this.unsupported(key, found.value, String(expected));
  }

  /** Refuses null, which would switch off a feature that cannot be switched off. */
  notNull(key: string): void {
    if (this.isNull(key)) throw this.unsupported(key, null, 'a value, or none at all');
  }

  /** Refuses a value other than the supported ones. `fallback` is the value of an absent key. */
  only<T extends string | number | boolean>(key: string, allowed: readonly T[], fallback: T): T {
    const found = this.find([key]);
    const value = found === null ? fallback : found.value;
    const known = allowed.find((item) => item === value);
    if (known !== undefined) return known;
    throw this.unsupported(key, value, allowed.map((item) => JSON.stringify(item)).join(' or '));
  }

  unsupported(key: string, value: unknown, supported: string): OdmoeError {
    return new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${this.context.path}: ${shortName(`${this.ownPrefix}${key}`)} is ${shortJson(value)}, supported is ${supported}; choose a checkpoint without it`,
    );
  }

  /** The family is read, but not with this value. @param part the operator or the format that odmoe lacks */
  lacks(key: string, value: unknown, part: string): MissingPartError {
    return new MissingPartError(
      `${this.context.path}: ${shortName(`${this.ownPrefix}${key}`)} is ${shortJson(value)}: odmoe lacks ${part}; docs/models.md has the models that it reads`,
      part,
    );
  }

  corrupt(problem: string): OdmoeError {
    return new OdmoeError(
      'MODEL_CORRUPT',
      `${this.context.path}: ${printableLine(problem)}; correct it, or download ${basename(this.context.path)} again`,
    );
  }

  private whole<T extends number | null>(fallback: T, lowest: number, keys: readonly string[]): number | T {
    const found = this.find(keys);
    if (found === null) return fallback;
    if (!isWhole(found.value, lowest)) throw this.wrong(found, `a whole number from ${lowest} to ${SIZE_LIMIT}`);
    return found.value;
  }

  private require<T>(keys: readonly string[], value: T | null): T {
    if (value === null) throw this.corrupt(`${this.ownPrefix}${keys.join(' or ')} is missing`);
    return value;
  }

  private get ownPrefix(): string {
    return this.objects[0]?.prefix ?? '';
  }

  private withObjects(objects: readonly ConfigObject[]): ConfigReader {
    return new ConfigReader({}, this.context, this.usage, objects);
  }

  private find(keys: readonly string[]): Found | null {
    let first: Found | null = null;
    for (const { values, prefix, isFallback } of this.objects) {
      for (const key of keys) {
        const value = Object.hasOwn(values, key) ? (values[key] ?? null) : null;
        if (value === null) continue;
        if (prefix !== null) this.usage.read.add(`${prefix}${key}`);
        const found = { key, value, prefix: prefix ?? '' };
        if (first !== null && !isFallback && !isDeepStrictEqual(first.value, value))
          throw this.contradiction(first, found);
        first ??= found;
      }
    }
    return first;
  }

  private contradiction(one: Found, other: Found): OdmoeError {
    const say = ({ prefix, key, value }: Found): string => `${shortName(`${prefix}${key}`)} is ${shortJson(value)}`;
    return this.corrupt(`${say(one)} and ${say(other)}, which mean the same and must agree`);
  }

  private keyOf(keys: readonly string[]): string {
    return this.find(keys)?.key ?? keys[0] ?? '';
  }

  private wrong({ key, value }: Pick<Found, 'key' | 'value'>, wanted: string): OdmoeError {
    return this.corrupt(`${shortName(`${this.ownPrefix}${key}`)} is ${shortJson(value)}, expected ${wanted}`);
  }
}

function isWhole(value: unknown, lowest: number): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= lowest && value <= SIZE_LIMIT;
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const LONGEST_VALUE = 100;
const LONGEST_NAME = 200;

/** A key with its objects, or another name from a file, for a message: on one line, whatever the file says. */
export function shortName(name: string): string {
  return printableLine(name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME)}...` : name);
}

/** A value from a file, for a message. */
export function shortJson(value: unknown): string {
  const text = value === undefined ? 'undefined' : printableJson(value);
  return text.length > LONGEST_VALUE ? `${text.slice(0, LONGEST_VALUE)}...` : text;
}
