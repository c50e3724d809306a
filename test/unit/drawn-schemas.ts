import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';

export type DrawnSchema = Record<string, unknown> | boolean;

const TEXTS = ['', 'a', 'name', 'ä"\\', '🦊', 'a b', '{"a":1}', '\n', '\u2028', 'naïve'];
const PATTERNS = [
  '^[a-z]+$',
  '^\\d{4}-\\d{2}-\\d{2}$',
  'foo|ba[rz]',
  '^(a|bc)*$',
  '[^a-z"\\\\]',
  '^.{2,5}$',
  '\\s',
  '^\\w+@\\w+\\.com$',
  'x$',
  '^$',
  '^[\\u{1F980}-\\u{1F9FF}]{1,3}$',
  '^(?:[A-F0-9]{2}:){2}[A-F0-9]{2}$',
  'é?z',
  '^[^]*$',
  '^(no|(?<b>yes)+?)$',
];
const FORMATS = ['date', 'time', 'date-time', 'duration', 'email', 'hostname', 'ipv4', 'ipv6', 'uuid', 'uri', 'color'];
const KEY_PATTERNS = ['^x-', '^[a-z]+$', 'a', '^.{1,3}$', '^(?!a)'];
const BOUNDS = [
  -1e300, -1e16, -1000, -12.5, -1, -0.001, 0, 1e-7, 0.1, 0.5, 1, 7, 99.99, 120, 1000, 123456789, 1e15, 1e21,
];

/** A nested schema with any keywords. It may contradict itself. */
export function drawSchema(random: SeededRandom): DrawnSchema {
  return new SchemaDrawer(random).root();
}

class SchemaDrawer {
  private readonly defined: string[] = [];

  constructor(private readonly random: SeededRandom) {}

  root(): DrawnSchema {
    if (this.chance(4)) this.defined.push('#');
    if (this.chance(2)) this.defined.push('#/$defs/one', '#/definitions/two');
    const schema = this.schema(3);
    if (typeof schema === 'boolean') return schema;
    const definitions =
      this.defined.length > 1 ? { $defs: { one: this.schema(2) }, definitions: { two: this.schema(2) } } : {};
    return { ...schema, ...definitions };
  }

  /** `isInside`: within an array or an object, where a reference makes no circle that no value breaks. */
  private schema(depth: number, isInside = false): DrawnSchema {
    if (isInside && this.defined.length > 0 && this.chance(8))
      return { $ref: this.one(this.defined), description: 'elsewhere' };
    const makers: (() => DrawnSchema)[] = [
      () => this.string(),
      () => this.number(),
      () => ({ type: this.one(['boolean', 'null']), title: 'small' }),
      () => ({ enum: this.different(this.list(3, () => this.value(2))) }),
      () => ({ const: this.value(2) }),
      () => ({ type: ['string', 'integer', 'null'], ...this.lengths('Length'), ...this.bounds() }),
      () => ({ enum: [1, 2.5, 'a', 'abc', null, [1], { a: 1 }], ...this.string(), ...this.bounds(), type: undefined }),
    ];
    if (depth > 0) {
      const array = (): DrawnSchema => this.array(depth);
      const object = (): DrawnSchema => this.object(depth);
      const union = (): DrawnSchema => ({ anyOf: this.list(3, () => this.schema(depth - 1, isInside)), default: null });
      makers.push(array, object, object, object, union, () => this.joined(depth, isInside));
    }
    if (this.chance(12)) return this.one<DrawnSchema>([true, {}, { type: 'object' }, { type: 'array' }]);
    return this.one(makers)();
  }

  /** A schema with conjunctions. */
  private joined(depth: number, isInside: boolean): DrawnSchema {
    const schemas = (count: number): DrawnSchema[] => this.list(count, () => this.schema(depth - 1, isInside));
    const types = { type: ['object', 'string', 'number', 'array', 'null'] };
    const elsewhere = isInside && this.defined.length > 0 ? { $ref: this.one(this.defined) } : {};
    return this.one<() => DrawnSchema>([
      () => ({ allOf: [types, ...schemas(1)], 'x-order': 1 }),
      () => ({ allOf: [this.object(depth), this.object(depth)] }),
      () => ({ ...this.object(depth), anyOf: [types, ...schemas(2)] }),
      () => ({ ...types, ...elsewhere, anyOf: schemas(3) }),
      () => ({ oneOf: [{ type: ['integer', 'null'] }, this.string(), this.object(depth)] }),
      () => this.discriminated(depth),
      () => ({ ...this.object(depth), nullable: true }),
      () => ({ not: {} }),
    ])();
  }

  private discriminated(depth: number): DrawnSchema {
    const option = (kind: string): DrawnSchema => {
      const schema = this.object(depth);
      return {
        ...schema,
        properties: { kind: { const: kind }, ...schema.properties },
        required: ['kind', ...schema.required],
      };
    };
    return { oneOf: [option('one'), option('two')], discriminator: { propertyName: 'kind' } };
  }

  private string(): Record<string, unknown> {
    const format = this.chance(4) ? { format: this.one(FORMATS) } : this.lengths('Length');
    return { type: 'string', ...format, ...(this.chance(3) ? { pattern: this.one(PATTERNS) } : {}) };
  }

  private number(): DrawnSchema {
    const multiple = this.chance(3) ? { multipleOf: this.one([1, 2, 7, 0.5, 0.25, 100, 12.5]) } : {};
    return { type: this.one(['integer', 'number']), ...this.bounds(), ...multiple };
  }

  private bounds(): Record<string, unknown> {
    const [first, second] = [this.one(BOUNDS), this.one(BOUNDS)];
    const [low, high] = [Math.min(first, second), Math.max(first, second)];
    return {
      ...(this.chance(3) ? { minimum: low } : {}),
      ...(this.chance(3) ? { maximum: high } : {}),
      ...(this.chance(4) ? { exclusiveMinimum: low } : {}),
      ...(this.chance(4) ? { exclusiveMaximum: high } : {}),
    };
  }

  private lengths(what: 'Length' | 'Items'): Record<string, unknown> {
    const least = this.random.int(4);
    return {
      ...(this.chance(2) ? { [`min${what}`]: least } : {}),
      ...(this.chance(2) ? { [`max${what}`]: least + this.random.int(4) } : {}),
    };
  }

  private array(depth: number): DrawnSchema {
    return {
      type: 'array',
      ...this.lengths('Items'),
      ...(this.chance(3) ? { prefixItems: this.list(3, () => this.schema(depth - 1, true)) } : {}),
      ...(this.chance(4) ? {} : { items: this.schema(depth - 1, true) }),
    };
  }

  private object(depth: number): { properties: object; required: string[] } & Record<string, unknown> {
    const keys = [...new Set(this.list(4, () => this.one(TEXTS)))];
    const properties = Object.fromEntries(keys.map((key) => [key, this.schema(depth - 1, true)]));
    const required = keys.filter(() => this.chance(2));
    if (this.chance(8)) required.push('not listed');
    const others = this.one<DrawnSchema | undefined>([undefined, undefined, false, true, this.schema(depth - 1, true)]);
    const patterns = this.chance(4)
      ? this.list(2, () => [this.one(KEY_PATTERNS), this.schema(depth - 1, true)] as const)
      : [];
    return {
      type: 'object',
      properties,
      required,
      ...(others === undefined ? {} : { additionalProperties: others }),
      ...(patterns.length === 0 ? {} : { patternProperties: Object.fromEntries(patterns) }),
      ...(this.chance(6)
        ? { propertyNames: this.one([{ enum: TEXTS }, { pattern: this.one(KEY_PATTERNS) }, { maxLength: 5 }]) }
        : {}),
      // Keys that are not listed may come twice, so at most one of them is surely there.
      ...(this.chance(4) ? { minProperties: Math.min(keys.length, 1 + this.random.int(3)) } : {}),
      ...(this.chance(4) ? { maxProperties: 2 + this.random.int(5) } : {}),
    };
  }

  private value(depth: number): unknown {
    const simple = [null, true, 0, -1.5, 1e21, ...TEXTS];
    if (depth === 0 || this.chance(2)) return this.one<unknown>(simple);
    if (this.chance(2)) return this.list(2, () => this.value(depth - 1));
    return Object.fromEntries(this.list(2, () => [this.one(TEXTS), this.value(depth - 1)] as const));
  }

  private different(values: readonly unknown[]): unknown[] {
    return [...new Map(values.map((value) => [JSON.stringify(value), value])).values()];
  }

  private list<Item>(most: number, make: () => Item): Item[] {
    return Array.from({ length: 1 + this.random.int(most) }, make);
  }

  private one<Item>(items: readonly Item[]): Item {
    return this.random.pick(items);
  }

  /** True once in this number of times on average. */
  private chance(times: number): boolean {
    return this.random.int(times) === 0;
  }
}
