import { OdmoeError } from '../errors/odmoe-error.js';
import { SIZE_LIMIT } from './model-shape.js';

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

/**
 * The values of config.json, each checked as it is read. A value that is null counts as left out. Several keys: older and newer names of
 * one value; the first that is there counts. Errors name the file, the key and the value.
 */
export class ConfigReader {
  constructor(
    private readonly values: Readonly<Record<string, unknown>>,
    readonly context: ConfigContext,
    /** Of the keys, in messages: "text_config.". */
    private readonly prefix = '',
  ) {}

  has(...keys: string[]): boolean {
    return this.find(keys) !== null;
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

  numberOr<T extends number | null>(fallback: T, ...keys: string[]): number | T {
    const found = this.find(keys);
    if (found === null) return fallback;
    if (typeof found.value !== 'number' || !Number.isFinite(found.value)) throw this.wrong(found, 'a number');
    return found.value;
  }

  /** A number above 0. */
  positiveOr<T extends number | null>(fallback: T, ...keys: string[]): number | T {
    const value = this.numberOr(fallback, ...keys);
    if (value !== null && !(value > 0)) throw this.wrong({ key: this.keyOf(keys), value }, 'a number above 0');
    return value;
  }

  flagOr(fallback: boolean, ...keys: string[]): boolean {
    const found = this.find(keys);
    if (found === null) return fallback;
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

  /** One whole number, or a list of them. */
  tokenIds(...keys: string[]): number[] {
    const found = this.find(keys);
    if (found === null) return [];
    const list: readonly unknown[] = Array.isArray(found.value) ? found.value : [found.value];
    return list.map((item) => {
      if (!isWhole(item, 0)) throw this.wrong(found, 'a token id or a list of them');
      return item;
    });
  }

  /** The object under a key; null: there is none. */
  within(key: string): ConfigReader | null {
    const found = this.find([key]);
    if (found === null) return null;
    if (!isObject(found.value)) throw this.wrong(found, 'an object');
    return new ConfigReader(found.value, this.context, `${this.prefix}${key}.`);
  }

  /** Values of this reader, and under the same keys those of another one, which count more. */
  overlaid(other: ConfigReader | null): ConfigReader {
    if (other === null) return this;
    const given = Object.entries(other.values).filter(([, value]) => (value ?? null) !== null);
    return new ConfigReader({ ...this.values, ...Object.fromEntries(given) }, this.context, other.prefix);
  }

  /** Values for keys that are left out. */
  withFallbacks(fallbacks: Readonly<Record<string, unknown>>): ConfigReader {
    return new ConfigReader(fallbacks, this.context).overlaid(this);
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
      `${this.context.path}: ${this.prefix}${key} is ${shortJson(value)}, supported is ${supported}; choose a checkpoint without it`,
    );
  }

  corrupt(problem: string): OdmoeError {
    return new OdmoeError('MODEL_CORRUPT', `${this.context.path}: ${problem}; download config.json again`);
  }

  private whole<T extends number | null>(fallback: T, lowest: number, keys: readonly string[]): number | T {
    const found = this.find(keys);
    if (found === null) return fallback;
    if (!isWhole(found.value, lowest)) throw this.wrong(found, `a whole number from ${lowest} to ${SIZE_LIMIT}`);
    return found.value;
  }

  private require<T>(keys: readonly string[], value: T | null): T {
    if (value === null) throw this.corrupt(`${this.prefix}${this.keyOf(keys)} is missing`);
    return value;
  }

  private find(keys: readonly string[]): { key: string; value: unknown } | null {
    for (const key of keys) {
      const value = Object.hasOwn(this.values, key) ? (this.values[key] ?? null) : null;
      if (value !== null) return { key, value };
    }
    return null;
  }

  private keyOf(keys: readonly string[]): string {
    return this.find(keys)?.key ?? keys[0] ?? '';
  }

  private wrong({ key, value }: { key: string; value: unknown }, wanted: string): OdmoeError {
    return this.corrupt(`${this.prefix}${key} is ${shortJson(value)}, expected ${wanted}`);
  }
}

function isWhole(value: unknown, lowest: number): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= lowest && value <= SIZE_LIMIT;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const LONGEST_VALUE = 100;

function shortJson(value: unknown): string {
  const text = JSON.stringify(value) ?? 'undefined';
  return text.length > LONGEST_VALUE ? `${text.slice(0, LONGEST_VALUE)}...` : text;
}
