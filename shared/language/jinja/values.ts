import { JsonFloat } from '../../base/json/exact-json.js';

/**
 * Values of templates, as Python has them. A `number` is an integer, `bigint` an integer too large for it, JsonFloat a float, an array a list. These
 * are the types of JSON that was read without loss (ExactJson), except for objects.
 */
export type Value = null | boolean | string | number | bigint | JsonFloat | Value[] | Special;

/** The template's own fault, or a value that it does not take. */
export class TemplateError extends Error {}

/** A value that is neither text, number nor list. */
export abstract class Special {
  /** Name of the type in messages. */
  abstract readonly typeName: string;
}

/** A name that has no value. It prints as nothing and is false; anything else is an error. */
export class Undefined extends Special {
  readonly typeName = 'Undefined';

  /** `what`: the message of the error. */
  constructor(readonly what: string) {
    super();
  }
}

/** The value; Undefined in place of none. None is a value. */
export function defined(value: Value | undefined, what: string): Value {
  return value === undefined ? new Undefined(what) : value;
}

export class Tuple extends Special {
  readonly typeName: string = 'tuple';

  constructor(readonly items: readonly Value[]) {
    super();
  }
}

/** A group of the filter groupby: a tuple whose parts have names. */
export class Group extends Tuple {
  constructor(
    readonly grouper: Value,
    readonly list: Value[],
  ) {
    super([grouper, list]);
  }
}

/** Text that is not escaped again. */
export class Markup extends Special {
  readonly typeName = 'Markup';

  constructor(readonly text: string) {
    super();
  }
}

/** Python's range(). */
export class Range extends Special {
  readonly typeName = 'range';

  constructor(
    readonly start: number,
    readonly stop: number,
    readonly step: number,
  ) {
    super();
  }

  get length(): number {
    return Math.max(0, Math.ceil((this.stop - this.start) / this.step));
  }

  /** `index`: from 0 to length - 1. */
  at(index: number): number {
    return this.start + index * this.step;
  }
}

/** Values that are made one by one, and can be read once. */
export class Generator extends Special {
  readonly typeName = 'generator';

  constructor(readonly values: Iterator<Value>) {
    super();
  }
}

/** A function, a method or a class. */
export class Callable extends Special {
  readonly typeName = 'function';

  /** `printed`: its text when it is printed. */
  constructor(
    readonly name: string,
    readonly call: (given: Given) => Value,
    readonly printed = `<function ${name}>`,
  ) {
    super();
  }
}

/** An object whose properties a template reads by name. */
export abstract class Properties extends Special {
  /** undefined: there is none of this name. */
  abstract property(name: string): Value | undefined;
  /** Text of the object when it is printed. */
  abstract printed(): string;
  /** The result of a call of the object. */
  call?(given: Given): Value;
}

/** Properties that a template may change. */
export class Namespace extends Special {
  readonly typeName = 'Namespace';

  constructor(readonly properties: Dict) {
    super();
  }
}

/** A dictionary. Keys that are equal in Python are one key: 1, 1.0 and True. */
export class Dict extends Special {
  readonly typeName = 'dict';
  private readonly entries = new Map<unknown, [key: Value, value: Value]>();

  static of(entries: Iterable<readonly [Value, Value]>): Dict {
    const dict = new Dict();
    for (const [key, value] of entries) dict.set(key, value);
    return dict;
  }

  get size(): number {
    return this.entries.size;
  }

  /** Throws TemplateError if the key cannot be one. */
  set(key: Value, value: Value): void {
    const hashed = hashOf(key);
    const entry = this.entries.get(hashed);
    if (entry === undefined) this.entries.set(hashed, [key, value]);
    else entry[1] = value;
  }

  /** undefined: there is no such key. Throws TemplateError if the key cannot be one. */
  get(key: Value): Value | undefined {
    return this.entries.get(hashOf(key))?.[1];
  }

  has(key: Value): boolean {
    return this.entries.has(hashOf(key));
  }

  items(): IterableIterator<[key: Value, value: Value]> {
    return this.entries.values();
  }

  keys(): Value[] {
    return [...this.entries.values()].map(([key]) => key);
  }

  values(): Value[] {
    return [...this.entries.values()].map(([, value]) => value);
  }
}

/** Keys, values or items of a dictionary. */
export class DictView extends Special {
  readonly typeName: string;

  constructor(
    readonly dict: Dict,
    readonly kind: 'keys' | 'values' | 'items',
  ) {
    super();
    this.typeName = `dict_${kind}`;
  }

  list(): Value[] {
    if (this.kind === 'keys') return this.dict.keys();
    if (this.kind === 'values') return this.dict.values();
    return [...this.dict.items()].map((entry) => new Tuple([...entry]));
  }
}

/** Begins the keys of values that are no text. Texts that begin with it get it twice. */
const KEY_PREFIX = '\u0000';
const UNDEFINED_KEY = Symbol('undefined');
/** Most tuples, items and characters of a key that is a tuple, so that its text stays short. */
const TUPLE_KEY_LIMIT = 100_000;
/** Most levels of tuples in a key. */
const TUPLE_KEY_DEPTH_LIMIT = 100;

/** A value that is the same for equal keys, and different for others. `size`: of the tuple that the key is a part of. */
export function hashOf(key: Value, size = { parts: 0, depth: 0 }): unknown {
  if (typeof key === 'string') return key.startsWith(KEY_PREFIX) ? KEY_PREFIX + key : key;
  if (typeof key === 'boolean') return Number(key);
  if (key instanceof JsonFloat) {
    const { value } = key;
    return Number.isInteger(value) && !Number.isSafeInteger(value) ? BigInt(value) : value === 0 ? 0 : value;
  }
  if (key instanceof Markup) return hashOf(key.text);
  if (key instanceof Undefined) return UNDEFINED_KEY;
  if (key instanceof Tuple) return `${KEY_PREFIX}(${key.items.map((item) => itemHash(item, size)).join('')})`;
  if (Array.isArray(key) || key instanceof Dict) throw new TemplateError(`unhashable type: '${typeName(key)}'`);
  return key;
}

/** A tuple that stands in a tuple again and again is counted each time. */
function itemHash(item: Value, size: { parts: number; depth: number }): string {
  size.parts += 1 + (textOf(item)?.length ?? 0);
  size.depth += 1;
  if (size.parts > TUPLE_KEY_LIMIT || size.depth > TUPLE_KEY_DEPTH_LIMIT) {
    throw new TemplateError(`a key has more than ${TUPLE_KEY_LIMIT} parts, or ${TUPLE_KEY_DEPTH_LIMIT} levels`);
  }
  const hashed = partOfHash(hashOf(item, size));
  size.depth -= 1;
  return hashed;
}

const objectNumbers = new WeakMap<object, number>();
let lastObjectNumber = 0;

function partOfHash(hashed: unknown): string {
  if (typeof hashed === 'string') return `s${hashed.length}:${hashed}`;
  if (typeof hashed !== 'object' || hashed === null) return `${typeof hashed}:${String(hashed)};`;
  let number = objectNumbers.get(hashed);
  if (number === undefined) objectNumbers.set(hashed, (number = lastObjectNumber += 1));
  return `o${number};`;
}

/** Name of the value's type in Python. */
export function typeName(value: Value): string {
  if (value === null) return 'NoneType';
  if (Array.isArray(value)) return 'list';
  if (value instanceof JsonFloat) return 'float';
  if (value instanceof Special) return value.typeName;
  if (typeof value === 'boolean') return 'bool';
  return typeof value === 'string' ? 'str' : 'int';
}

/** The characters of a text; null: the value is no text. */
export function textOf(value: Value | undefined): string | null {
  if (typeof value === 'string') return value;
  return value instanceof Markup ? value.text : null;
}

export function isInteger(value: Value | undefined): value is number | bigint | boolean {
  return typeof value === 'number' || typeof value === 'bigint' || typeof value === 'boolean';
}

/** Arguments of a call. */
export class Given {
  constructor(
    readonly positional: readonly Value[],
    readonly named: ReadonlyMap<string, Value>,
  ) {}

  /**
   * The arguments in the order of the names of parameters; undefined where none is given. Throws TemplateError if one of the first `required` is
   * missing, or if there are others.
   */
  bound(called: string, names: readonly string[], required = 0): (Value | undefined)[] {
    if (this.positional.length > names.length) {
      throw new TemplateError(`${called} takes at most ${names.length} arguments, ${this.positional.length} are given`);
    }
    const values: (Value | undefined)[] = names.map((name, place) => {
      const isPlaced = place < this.positional.length;
      if (isPlaced && this.named.has(name)) throw new TemplateError(`${called} has two values for ${name}`);
      return isPlaced ? this.positional[place] : this.named.get(name);
    });
    for (const name of this.named.keys()) {
      if (!names.includes(name)) throw new TemplateError(`${called} takes no argument ${name}`);
    }
    const missing = names.find((_, place) => place < required && values[place] === undefined);
    if (missing !== undefined) throw new TemplateError(`${called} needs an argument ${missing}`);
    return values;
  }

  /** The arguments of a function whose parameters have no names. */
  unnamed(called: string, least: number, most: number): readonly Value[] {
    if (this.named.size > 0) throw new TemplateError(`${called} takes no keyword arguments`);
    const count = this.positional.length;
    if (count < least || count > most) {
      throw new TemplateError(`${called} takes ${least} to ${most} arguments, ${count} are given`);
    }
    return this.positional;
  }
}

export const NO_ARGUMENTS = new Given([], new Map());

/** Converts a value of the code, or of JSON read without loss (ExactJson), to a value for templates. */
export function templateValue(given: unknown): Value {
  if (given === undefined) return new Undefined('a value of the code is undefined');
  if (given === null || typeof given === 'string' || typeof given === 'boolean' || typeof given === 'bigint')
    return given;
  if (typeof given === 'number') return Number.isSafeInteger(given) ? given + 0 : new JsonFloat(given);
  if (given instanceof JsonFloat) return given;
  if (Array.isArray(given)) return given.map(templateValue);
  const entries = given instanceof Map ? (given as Map<string, unknown>) : Object.entries(given);
  return Dict.of([...entries].map(([key, value]): [Value, Value] => [key, templateValue(value)]));
}
