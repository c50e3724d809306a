import { isDeepStrictEqual } from 'node:util';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { SIZE_LIMIT } from '../../shared/model/model-shape.js';

/** How weights are quantized as shipped. */
export type Quantization = 'none' | 'fp8' | 'mxfp4';

/** What is known of a config.json before its family reads it. */
export interface ConfigContext {
  /** Of the file, for messages. */
  path: string;
  /** Of ropes that change with the length (longrope) take the long factors, not the short ones. */
  longContext: boolean;
  quantization: Quantization;
}

/** One object of config.json, or a part of one. */
interface ConfigObject {
  values: Readonly<Record<string, unknown>>;
  /** Of its keys, in messages: "text_config."; null: no file has it. */
  prefix: string | null;
  /** Others may give other values for its keys, and count more. */
  isFallback: boolean;
}

/** Which values of a config.json somebody has read. The others must be explained (unread-keys.ts). */
export class ConfigUsage {
  /** Of values, with those that they stand in: "text_config.hidden_size". */
  readonly read = new Set<string>();
  /** Of objects whose values are read one by one. */
  readonly entered = new Set<string>();
}

interface Found {
  key: string;
  value: unknown;
  prefix: string;
}

/**
 * The values of config.json, each checked as it is read. A value that is null counts as left out. Several keys: older and newer names of
 * one value, which may stand in several objects; those that are there must agree. Errors name the file, the key and the value.
 */
export class ConfigReader {
  private readonly objects: readonly ConfigObject[];

  constructor(
    values: Readonly<Record<string, unknown>>,
    readonly context: ConfigContext,
    readonly usage = new ConfigUsage(),
    /** The first counts most. */
    objects?: readonly ConfigObject[],
  ) {
    this.objects = objects ?? [{ values, prefix: '', isFallback: false }];
  }

  has(...keys: string[]): boolean {
    return this.find(keys) !== null;
  }

  /** The key is there, and its value is null: transformers takes this for "none", where a key that is left out has a default. */
  isNull(key: string): boolean {
    const holder = this.objects.find(({ values }) => Object.hasOwn(values, key));
    return holder !== undefined && holder.values[key] === null;
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

  /** null is refused where the number has a default: transformers would compute with null. */
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

  /** null is refused where the flag is on by default: transformers takes it for false. */
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

  /** One whole number, or a list of them; all that several objects have. */
  tokenIds(key: string): number[] {
    const ids = this.objects.flatMap(({ values, prefix }) => {
      const found = this.withObjects([{ values, prefix, isFallback: false }]).find([key]);
      if (found === null) return [];
      const list: readonly unknown[] = Array.isArray(found.value) ? found.value : [found.value];
      return list.map((item) => {
        if (!isWhole(item, 0)) throw this.wrong(found, 'a token id or a list of them');
        return item;
      });
    });
    return [...new Set(ids)];
  }

  /** Keys of objects inside this one. */
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

  /** Values of this reader and those of another one, which must agree where both have a key. */
  beside(other: ConfigReader | null): ConfigReader {
    return other === null ? this : this.withObjects([...other.objects, ...this.objects]);
  }

  /** Values of this reader, and under the same keys those of another one, which count more. */
  overlaid(other: ConfigReader | null): ConfigReader {
    if (other === null) return this;
    return this.withObjects([...other.objects, ...this.objects.map((object) => ({ ...object, isFallback: true }))]);
  }

  /** Only these keys of this reader. */
  picked(...keys: string[]): ConfigReader {
    return this.withObjects(
      this.objects.map((object) => ({
        ...object,
        values: Object.fromEntries(Object.entries(object.values).filter(([key]) => keys.includes(key))),
      })),
    );
  }

  /** Values for keys that are left out. */
  withFallbacks(fallbacks: Readonly<Record<string, unknown>>): ConfigReader {
    return this.withObjects([...this.objects, { values: fallbacks, prefix: null, isFallback: true }]);
  }

  /** Keys that change nothing here, because of what other keys say. */
  idle(...keys: string[]): void {
    for (const key of keys) for (const { prefix } of this.objects) this.usage.read.add(`${prefix ?? ''}${key}`);
  }

  /** Refuses a key that repeats what others say, and says something else. */
  repeats(key: string, expected: number): void {
    const found = this.find([key]);
    if (found !== null && found.value !== expected) throw this.unsupported(key, found.value, String(expected));
  }

  /** Refuses null, which would switch off what cannot be switched off. */
  notNull(key: string): void {
    if (this.isNull(key)) throw this.unsupported(key, null, 'a value, or none at all');
  }

  /** Refuses a value that is computed in no other way. `fallback` stands for a key that is left out. */
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
      `${this.context.path}: ${this.ownPrefix}${key} is ${shortJson(value)}, supported is ${supported}; choose a checkpoint without it`,
    );
  }

  corrupt(problem: string): OdmoeError {
    return new OdmoeError(
      'MODEL_CORRUPT',
      `${this.context.path}: ${problem}; correct it, or download config.json again`,
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
    const say = ({ prefix, key, value }: Found): string => `${prefix}${key} is ${shortJson(value)}`;
    return this.corrupt(`${say(one)} and ${say(other)}, which mean the same and must agree`);
  }

  private keyOf(keys: readonly string[]): string {
    return this.find(keys)?.key ?? keys[0] ?? '';
  }

  private wrong({ key, value }: Pick<Found, 'key' | 'value'>, wanted: string): OdmoeError {
    return this.corrupt(`${this.ownPrefix}${key} is ${shortJson(value)}, expected ${wanted}`);
  }
}

function isWhole(value: unknown, lowest: number): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= lowest && value <= SIZE_LIMIT;
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const LONGEST_VALUE = 100;

export function shortJson(value: unknown): string {
  const text = JSON.stringify(value) ?? 'undefined';
  return text.length > LONGEST_VALUE ? `${text.slice(0, LONGEST_VALUE)}...` : text;
}
