import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { SIZE_LIMIT } from '../../shared/model/model-shape.js';
import { corruptGguf, shownGgufValue } from './gguf-errors.js';
import type { GgufKeys, GgufScalar, GgufValue } from './gguf-types.js';

/** Most layers for which values are listed. Models have below 200. */
const LAYERS_LIMIT = 65_536;

/** A kind of values: the check and its words. */
interface Kind<T extends GgufScalar> {
  words: string;
  is(value: GgufValue): value is T;
}

const INTEGER: Kind<number> = {
  words: `a whole number from 0 to ${SIZE_LIMIT}`,
  is: (value): value is number => Number.isInteger(value) && Number(value) >= 0 && Number(value) <= SIZE_LIMIT,
};
const FLOAT: Kind<number> = {
  words: 'a finite number',
  is: (value): value is number => Number.isFinite(value),
};
const FLAG: Kind<boolean> = {
  words: 'true or false',
  is: (value): value is boolean => typeof value === 'boolean',
};
const TEXT: Kind<string> = {
  words: 'a text',
  is: (value): value is string => typeof value === 'string',
};

/**
 * The values of a file's keys, each checked as it is read. All throw MODEL_CORRUPT for a value of another kind, and where a key without a default
 * is missing. A float of 32 bits is the double of the same value: 1e-6 reads as 9.999999974752427e-7.
 */
export class GgufKeyReader {
  /**
   * @param path of the file, for messages
   * @param prefix stands before each name that a method is given: "qwen3moe."
   * @param asked full names of the keys that were read
   */
  constructor(
    private readonly keys: GgufKeys,
    readonly path: string,
    readonly prefix = '',
    private readonly asked = new Set<string>(),
  ) {}

  /** A reader of the same keys with another prefix. Both know which keys were read. */
  under(prefix: string): GgufKeyReader {
    return new GgufKeyReader(this.keys, this.path, prefix, this.asked);
  }

  /** True if the key is present. It does not count as read. */
  has(name: string): boolean {
    return this.keys.has(this.prefix + name);
  }

  /** A whole number from 0 to 2^31 - 1. */
  integer(name: string): number {
    return this.require(INTEGER, name);
  }

  integerOr<F>(fallback: F, name: string): number | F {
    return this.readOr(INTEGER, fallback, name);
  }

  float(name: string): number {
    return this.require(FLOAT, name);
  }

  floatOr<F>(fallback: F, name: string): number | F {
    return this.readOr(FLOAT, fallback, name);
  }

  flag(name: string): boolean {
    return this.require(FLAG, name);
  }

  flagOr<F>(fallback: F, name: string): boolean | F {
    return this.readOr(FLAG, fallback, name);
  }

  text(name: string): string {
    return this.require(TEXT, name);
  }

  textOr<F>(fallback: F, name: string): string | F {
    return this.readOr(TEXT, fallback, name);
  }

  /** A whole number for each layer. A file has one for all layers, or a list with one for each. */
  integers(name: string, layers: number): readonly number[] {
    return this.eachLayer(INTEGER, name, layers);
  }

  floats(name: string, layers: number): readonly number[] {
    return this.eachLayer(FLOAT, name, layers);
  }

  flags(name: string, layers: number): readonly boolean[] {
    return this.eachLayer(FLAG, name, layers);
  }

  /** Full names of the keys that were not read, in the order of the file. */
  unread(): string[] {
    return [...this.keys.keys()].filter((key) => !this.asked.has(key));
  }

  private find(name: string): GgufValue | undefined {
    this.asked.add(this.prefix + name);
    return this.keys.get(this.prefix + name);
  }

  private readOr<T extends GgufScalar, F>(kind: Kind<T>, fallback: F, name: string): T | F {
    const value = this.find(name);
    if (value === undefined) return fallback;
    if (kind.is(value)) return value;
    throw this.wrong(name, shownGgufValue(value), kind.words);
  }

  private require<T extends GgufScalar>(kind: Kind<T>, name: string): T {
    const value = this.readOr(kind, undefined, name);
    if (value === undefined) throw this.wrong(name, 'missing', kind.words);
    return value;
  }

  private eachLayer<T extends GgufScalar>(kind: Kind<T>, name: string, layers: number): readonly T[] {
    const value = this.find(name);
    const words = `${kind.words}, or a list of them for ${layers} layers`;
    if (value === undefined) throw this.wrong(name, 'missing', words);
    if (layers > LAYERS_LIMIT) throw this.wrong(name, `${layers} layers`, `at most ${LAYERS_LIMIT}`);
    if (kind.is(value)) return Array<T>(layers).fill(value);
    const isList = typeof value === 'object' && value.length === layers && value.every((one) => kind.is(one));
    if (!isList) throw this.wrong(name, shownGgufValue(value), words);
    return value;
  }

  private wrong(name: string, found: string, wanted: string): OdmoeError {
    return corruptGguf(this.path, `key ${shownGgufValue(this.prefix + name)}: ${found}, expected ${wanted}`);
  }
}

/** A reader of the keys of the file's architecture: `general.architecture` gives the prefix. @throws MODEL_CORRUPT */
export function architectureKeys(keys: GgufKeys, path: string): GgufKeyReader {
  const reader = new GgufKeyReader(keys, path);
  return reader.under(`${reader.text('general.architecture')}.`);
}
