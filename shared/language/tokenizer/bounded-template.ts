import {
  asNumber,
  asPlace,
  isLarge,
  largeIntegerFilter,
  largeIntegerResult,
  largeLiteral,
  negatedLarge,
  withLargeLiterals,
} from './template-numbers.js';
import { COSTS, type TemplateBudget } from './template-budget.js';
import { type GivenArguments, payForCall, payForDate, payForFilter, payForMethod, sizeOf } from './template-costs.js';
import { type JsonStyle, jsonText, PLAIN_JSON, pythonText } from './python-text.js';
import {
  BooleanValue,
  IntegerValue,
  jinja,
  type JinjaEnvironment,
  type JinjaNode,
  type JinjaValue,
  jinjaValue,
  KnownNode,
  ListValue,
  NullValue,
  ObjectValue,
  TextValue,
  UndefinedValue,
} from './template-runtime.js';

/** A Jinja template with a limit on its steps, and on the values that it makes and reads. */
export class BoundedTemplate {
  private readonly parsed: JinjaNode;

  /** Throws the parser's error if the source is not a template. */
  constructor(source: string) {
    const tokens = jinja.tokenize(source, { lstrip_blocks: true, trim_blocks: true });
    this.parsed = jinja.parse(tokens.map(withLargeLiterals));
  }

  /**
   * Throws TemplateLimitError if the budget, which several renderings may share, is used up. Throws the errors that the template itself raises.
   * `wallMs`: the time that the template sees.
   */
  render(variables: Record<string, unknown>, budget: TemplateBudget, wallMs: number): string {
    const environment = new jinja.Environment();
    for (const [name, value] of Object.entries(globalsOf(budget, wallMs))) environment.set(name, value);
    for (const [name, value] of Object.entries(variables)) environment.setVariable(name, jinjaValue(value));
    return pythonText(new BoundedInterpreter(environment, budget).run(this.parsed), budget);
  }
}

/** Nodes that are statements: their result is not a value that a template prints. */
const STATEMENTS: ReadonlySet<string> = new Set(['Set', 'Macro', 'Comment', 'Break', 'Continue']);
/** Statements whose result is the text of their contents. The contents have been paid for already. */
const BLOCKS: ReadonlySet<string> = new Set(['If', 'For', 'Program']);
/** Methods of objects. In a call they have priority over properties of the same name. */
const OBJECT_METHODS: ReadonlySet<string> = new Set(['get', 'items', 'keys', 'values']);
const EQUALITIES: ReadonlySet<string> = new Set(['==', '!=']);
const CONTAINMENTS: ReadonlySet<string> = new Set(['in', 'not in']);

/**
 * The package's interpreter, with a budget. Operands and arguments are evaluated here, so that the cost of an operation is known, and paid for,
 * before it runs; the package runs most operations itself. Values are written as Python writes them.
 */
class BoundedInterpreter extends jinja.Interpreter {
  /** Texts that were read before, each in one stretch of memory. */
  private readonly read = new WeakSet<JinjaValue>();

  constructor(
    environment: JinjaEnvironment,
    private readonly budget: TemplateBudget,
  ) {
    super(environment);
  }

  override evaluate(node: JinjaNode | undefined, environment: JinjaEnvironment): JinjaValue {
    if (node instanceof KnownNode) return node.known;
    this.budget.step();
    this.budget.enter();
    try {
      // Some filters of the package return nothing for an empty list.
      return this.evaluateNode(node, environment) ?? new UndefinedValue(undefined);
    } finally {
      this.budget.leave();
    }
  }

  override evaluateBlock(nodes: readonly JinjaNode[], environment: JinjaEnvironment): JinjaValue {
    let text = '';
    for (const node of nodes) {
      const value = this.evaluate(node, environment);
      if (STATEMENTS.has(node.type)) continue;
      const printed = pythonText(value, this.budget);
      if (!BLOCKS.has(node.type)) this.budget.spend(printed.length * COSTS.character);
      text += printed;
    }
    return new TextValue(text);
  }

  private evaluateNode(node: JinjaNode | undefined, environment: JinjaEnvironment): JinjaValue | undefined {
    switch (node?.type) {
      case 'BinaryExpression':
        return this.binary(node, environment);
      case 'UnaryExpression':
        return this.unary(node, environment);
      case 'FilterExpression':
        return this.filter(this.evaluate(childOf(node, 'operand'), environment), node, environment);
      case 'FilterStatement':
        return this.filter(this.evaluateBlock(childrenOf(node, 'body'), environment), node, environment);
      case 'TestExpression':
        return this.test(node, environment);
      case 'CallExpression':
        return this.call(node, environment);
      case 'MemberExpression':
        return this.member(node, environment);
      case 'For':
        return this.loop(node, environment);
      case 'Identifier':
        return largeLiteral(node) ?? super.evaluate(node, environment);
      case undefined:
      default:
        return super.evaluate(node, environment);
    }
  }

  private binary(node: JinjaNode, environment: JinjaEnvironment): JinjaValue | undefined {
    const operator = (node['operator'] as { value: string }).value;
    const left = this.evaluate(childOf(node, 'left'), environment);
    if (operator === 'and' || operator === 'or') {
      const decided = left.__bool__().value === (operator === 'or');
      return decided ? left : this.evaluate(childOf(node, 'right'), environment);
    }
    const right = this.evaluate(childOf(node, 'right'), environment);
    return (
      this.joined(operator, left, right) ??
      largeIntegerResult(operator, left, right) ??
      this.compared(operator, left, right, (a, b) =>
        super.evaluate({ ...node, left: new KnownNode(a), right: new KnownNode(b) }, environment),
      )
    );
  }

  /** The result of joining or repeating texts and lists; null: the operation is another one. */
  private joined(operator: string, left: JinjaValue, right: JinjaValue): JinjaValue | null {
    if (operator === '~' || (operator === '+' && isTextWithValue(left, right))) {
      const [first, second] = [pythonText(left, this.budget), pythonText(right, this.budget)];
      // A long text is not copied until the whole text is read.
      this.budget.spend(Math.min(first.length, second.length) * COSTS.character);
      return new TextValue(first + second);
    }
    if (operator === '+' && left instanceof ListValue && right instanceof ListValue) {
      this.budget.spend((left.value.length + right.value.length) * COSTS.place);
      return new ListValue(left.value.concat(right.value));
    }
    return operator === '*' && right instanceof IntegerValue ? this.repeated(left, Number(right.value)) : null;
  }

  private repeated(value: JinjaValue, times: number): JinjaValue | null {
    const count = Math.max(0, times);
    const pay = (): void => this.budget.spend((sizeOf(value) * COSTS.place + 1) * count);
    if (value instanceof TextValue) {
      pay();
      return new TextValue(value.value.repeat(count));
    }
    if (!(value instanceof ListValue)) return null;
    pay();
    const items = value.value;
    return new ListValue(Array.from({ length: count }, () => items).flat());
  }

  private compared(
    operator: string,
    left: JinjaValue,
    right: JinjaValue,
    byPackage: (left: JinjaValue, right: JinjaValue) => JinjaValue | undefined,
  ): JinjaValue | undefined {
    if (EQUALITIES.has(operator) && left instanceof TextValue && right instanceof TextValue) {
      if (left.value.length === right.value.length) this.budget.read(left.value.length);
    }
    if (CONTAINMENTS.has(operator)) {
      this.readText(left);
      this.budget.read(sizeOf(right));
      if (left instanceof TextValue && right instanceof ListValue) {
        const alike = right.value.filter(
          ({ value }) => typeof value === 'string' && value.length === left.value.length,
        );
        this.budget.read(alike.length * left.value.length);
      }
    }
    const isFloat = operator === '/' || operator === '**';
    return isFloat ? byPackage(asNumber(left), asNumber(right)) : byPackage(left, right);
  }

  private unary(node: JinjaNode, environment: JinjaEnvironment): JinjaValue | undefined {
    const argument = this.evaluate(childOf(node, 'argument'), environment);
    const sign = (node['operator'] as { value: string }).value;
    if (isLarge(argument) && sign !== 'not') return sign === '-' ? (negatedLarge(argument) ?? argument) : argument;
    return super.evaluate({ ...node, argument: new KnownNode(argument) }, environment);
  }

  private test(node: JinjaNode, environment: JinjaEnvironment): JinjaValue | undefined {
    const operand = this.evaluate(childOf(node, 'operand'), environment);
    const name = (node['test'] as { value: string }).value;
    if (name === 'lower' || name === 'upper') this.budget.spend(sizeOf(operand) * COSTS.place);
    // The last digit decides whether a large integer is even.
    const asked =
      typeof operand.value === 'bigint' && (name === 'odd' || name === 'even')
        ? new IntegerValue(Number(operand.value % 2n))
        : operand;
    return super.evaluate({ ...node, operand: new KnownNode(asked) }, environment);
  }

  /** `node`: an expression or a statement that applies a filter. */
  private filter(operand: JinjaValue, node: JinjaNode, environment: JinjaEnvironment): JinjaValue | undefined {
    const filter = childOf(node, 'filter');
    const isCall = filter.type === 'CallExpression';
    const name = String((isCall ? childOf(filter, 'callee') : filter)['value']);
    const nodes = isCall ? this.knownArguments(childrenOf(filter, 'args'), environment) : [];
    const given = givenArguments(nodes);
    if (name === 'tojson') return new TextValue(jsonText(operand, jsonStyleOf(given), this.budget));
    if (name === 'string') return new TextValue(pythonText(operand, this.budget));
    if (name === 'join' && operand instanceof ListValue) return this.joinedList(operand.value, given);
    const large = largeIntegerFilter(name, operand);
    if (large !== null) return large;
    this.readText(operand);
    payForFilter(name, operand, given, this.budget);
    const applied = isCall ? { ...filter, args: nodes } : filter;
    return super.evaluate({ type: 'FilterExpression', operand: new KnownNode(operand), filter: applied }, environment);
  }

  private joinedList(items: readonly JinjaValue[], { positional, named }: GivenArguments): JinjaValue {
    const separator = positional[0] ?? named.get('d') ?? named.get('separator') ?? new TextValue('');
    if (!(separator instanceof TextValue)) throw new Error('separator must be a string');
    const attribute = positional[1] ?? named.get('attribute');
    const joined = items.map((item) => {
      const value = attribute instanceof TextValue ? propertyOf(item, attribute.value) : item;
      const text = pythonText(value, this.budget);
      this.budget.spend(text.length + separator.value.length + COSTS.place);
      return text;
    });
    return new TextValue(joined.join(separator.value));
  }

  private call(node: JinjaNode, environment: JinjaEnvironment): JinjaValue | undefined {
    const nodes = this.knownArguments(childrenOf(node, 'args'), environment);
    const given = givenArguments(nodes);
    payForCall(given.positional, this.budget);
    payForCall([...given.named.values()], this.budget);
    const callee = childOf(node, 'callee');
    if (callee.type !== 'MemberExpression' || callee['computed'] === true) {
      return super.evaluate({ ...node, args: nodes }, environment);
    }
    const object = this.evaluate(childOf(callee, 'object'), environment);
    const name = String(childOf(callee, 'property')['value']);
    let called: JinjaNode = { ...callee, object: new KnownNode(object) };
    let args = nodes;
    if (object instanceof TextValue) {
      args = nodes.map((argument) => (argument instanceof KnownNode ? known(asPlace(argument.known)) : argument));
      this.readText(object);
      payForMethod(name, object.value, given, this.budget);
    } else if (object.value instanceof Map) {
      if (name !== 'get') this.budget.spend((object.value as Map<string, unknown>).size * COSTS.item * 2);
      const method = object instanceof ObjectValue && OBJECT_METHODS.has(name) ? object.builtins.get(name) : undefined;
      if (method !== undefined) called = new KnownNode(method);
    }
    return super.evaluate({ ...node, args, callee: called }, environment);
  }

  private member(node: JinjaNode, environment: JinjaEnvironment): JinjaValue | undefined {
    const object = this.evaluate(childOf(node, 'object'), environment);
    this.readText(object);
    const property = childOf(node, 'property');
    if (property.type !== 'SliceExpression') {
      const place = node['computed'] === true ? known(asPlace(this.evaluate(property, environment))) : property;
      return super.evaluate({ ...node, object: new KnownNode(object), property: place }, environment);
    }
    const [start, stop, step] = ['start', 'stop', 'step'].map((name) =>
      asPlace(this.evaluate(property[name] as JinjaNode | undefined, environment)),
    );
    const cut = object instanceof TextValue ? this.cutOf(object.value, start, stop, step) : null;
    if (cut !== null) return cut;
    // The package first makes a list of a text's characters.
    this.budget.spend(sizeOf(object) * (object instanceof TextValue ? COSTS.listedCharacter : COSTS.place));
    const slice = { ...property, start: known(start), stop: known(stop), step: known(step) };
    return super.evaluate({ ...node, object: new KnownNode(object), property: slice }, environment);
  }

  /** A slice of a text in which every character is one UTF-16 unit; null: the package must take the text apart. */
  private cutOf(text: string, start?: JinjaValue, stop?: JinjaValue, step?: JinjaValue): JinjaValue | null {
    const [from, to, by] = [start?.value, stop?.value, step?.value];
    const isPlain =
      (by === undefined || by === 1) && [from, to].every((at) => at === undefined || Number.isInteger(at));
    this.budget.read(text.length);
    if (!isPlain || SURROGATE.test(text)) return null;
    const cut = text.slice(from as number | undefined, to as number | undefined);
    this.budget.spend(cut.length * COSTS.character);
    return new TextValue(cut);
  }

  private loop(node: JinjaNode, environment: JinjaEnvironment): JinjaValue | undefined {
    const iterable = childOf(node, 'iterable');
    const selected = iterable.type === 'SelectExpression';
    const items = this.evaluate(selected ? childOf(iterable, 'lhs') : iterable, environment);
    this.budget.spend(sizeOf(items) * COSTS.turn);
    const over = selected ? { ...iterable, lhs: known(items) } : known(items);
    return super.evaluate({ ...node, iterable: over }, environment);
  }

  /** The arguments with their values. String literals stay as they are, because some filters of the package examine them. */
  private knownArguments(nodes: readonly JinjaNode[], environment: JinjaEnvironment): JinjaNode[] {
    return nodes.map((node) => {
      if (node.type === 'StringLiteral') return node;
      const property = ARGUMENT_PROPERTIES.get(node.type);
      if (property === undefined) return known(this.evaluate(node, environment));
      const value = this.evaluate(childOf(node, property), environment);
      this.budget.spend(sizeOf(value) * COSTS.place);
      return { ...node, [property]: known(value) };
    });
  }

  /** The first read of a joined text copies it into one stretch of memory. */
  private readText(value: JinjaValue): void {
    if (!(value instanceof TextValue) || this.read.has(value)) return;
    this.budget.read(value.value.length);
    this.read.add(value);
  }
}

/** One half of a character that has two UTF-16 units. */
const SURROGATE = /[\ud800-\udfff]/;

/** The property in which arguments that are no plain expression hold their value. */
const ARGUMENT_PROPERTIES: ReadonlyMap<string, string> = new Map([
  ['KeywordArgumentExpression', 'value'],
  ['SpreadExpression', 'argument'],
  ['KeywordSpreadExpression', 'argument'],
]);

function givenArguments(nodes: readonly JinjaNode[]): GivenArguments {
  const positional: JinjaValue[] = [];
  const named = new Map<string, JinjaValue>();
  for (const node of nodes) {
    if (node instanceof KnownNode) positional.push(node.known);
    else if (node.type === 'StringLiteral') positional.push(new TextValue(String(node['value'])));
    else {
      const value = childOf(node, ARGUMENT_PROPERTIES.get(node.type) ?? '');
      if (!(value instanceof KnownNode)) continue;
      if (node.type === 'KeywordArgumentExpression') named.set(String(childOf(node, 'key')['value']), value.known);
      else if (value.known instanceof ListValue) for (const item of value.known.value) positional.push(item);
      else if (value.known instanceof ObjectValue) for (const [key, item] of value.known.value) named.set(key, item);
    }
  }
  return { positional, named };
}

function jsonStyleOf({ named }: GivenArguments): JsonStyle {
  const indent = named.get('indent') ?? new NullValue(null);
  const ensureAscii = named.get('ensure_ascii') ?? new BooleanValue(false);
  const sortKeys = named.get('sort_keys') ?? new BooleanValue(false);
  const separators = named.get('separators') ?? new NullValue(null);
  if (!(indent instanceof IntegerValue || indent instanceof NullValue)) throw new Error('indent must be a number');
  if (!(ensureAscii instanceof BooleanValue)) throw new Error('ensure_ascii must be a boolean');
  if (!(sortKeys instanceof BooleanValue)) throw new Error('sort_keys must be a boolean');
  return {
    indent: indent instanceof IntegerValue ? Number(indent.value) : PLAIN_JSON.indent,
    ensureAscii: ensureAscii.value,
    sortKeys: sortKeys.value,
    separators: separators instanceof NullValue ? null : separatorsOf(separators),
  };
}

function separatorsOf(given: JinjaValue): [string, string] {
  const [between, afterKey, ...more] = given instanceof ListValue ? given.value : [];
  if (between instanceof TextValue && afterKey instanceof TextValue && more.length === 0) {
    return [between.value, afterKey.value];
  }
  throw new Error('separators must be two strings');
}

function propertyOf(item: JinjaValue, name: string): JinjaValue {
  const property = item.value instanceof Map ? (item.value as Map<string, JinjaValue>).get(name) : undefined;
  return property ?? new UndefinedValue(undefined);
}

/** True if one operand is a text and neither is undefined or none. Python adds texts only to texts; the package adds any value. */
function isTextWithValue(left: JinjaValue, right: JinjaValue): boolean {
  const has = (value: JinjaValue): boolean => !(value instanceof UndefinedValue || value instanceof NullValue);
  return (left instanceof TextValue || right instanceof TextValue) && has(left) && has(right);
}

function known(value: JinjaValue | undefined): KnownNode {
  return new KnownNode(value ?? new UndefinedValue(undefined));
}

function childOf(node: JinjaNode, property: string): JinjaNode {
  return node[property] as JinjaNode;
}

function childrenOf(node: JinjaNode, property: string): readonly JinjaNode[] {
  return (node[property] ?? []) as readonly JinjaNode[];
}

/** Names that a template finds in addition to its variables. They are the same as in Template.render of the package. */
function globalsOf(budget: TemplateBudget, wallMs: number): Record<string, unknown> {
  return {
    true: true,
    false: false,
    none: null,
    True: true,
    False: false,
    None: null,
    raise_exception: (message: string) => {
      throw new Error(message);
    },
    range: (first: number, second?: number, third?: number) => rangeOf(first, second, third, budget),
    strftime_now: (format: string) => {
      payForDate(format, budget);
      return strftime(wallMs, format);
    },
  };
}

/** Python's range(). */
function rangeOf(first: number, second: number | undefined, step = 1, budget: TemplateBudget): number[] {
  if (step === 0) throw new Error('range() step must not be zero');
  const [start, stop] = second === undefined ? [0, first] : [first, second];
  const numbers: number[] = [];
  for (let number = start; step > 0 ? number < stop : number > stop; number += step) {
    budget.step();
    budget.spend(COSTS.item);
    numbers.push(number);
  }
  return numbers;
}

const MONTHS = [
  'January',
  'February',
  'March',
  'April',
  'May',
  'June',
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
];
const WEEKDAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

/** Python's strftime, in English and local time, for the directives of dates and times; other directives stay as they are. */
export function strftime(wallMs: number, format: string): string {
  const date = new Date(wallMs);
  const two = (value: number): string => String(value).padStart(2, '0');
  const hour = date.getHours() % 12 || 12;
  const weekday = WEEKDAYS[date.getDay()] ?? '';
  const month = MONTHS[date.getMonth()] ?? '';
  const directives: Readonly<Record<string, string>> = {
    Y: String(date.getFullYear()),
    y: two(date.getFullYear() % 100),
    m: two(date.getMonth() + 1),
    B: month,
    b: month.slice(0, 3),
    A: weekday,
    a: weekday.slice(0, 3),
    d: two(date.getDate()),
    H: two(date.getHours()),
    I: two(hour),
    p: date.getHours() < 12 ? 'AM' : 'PM',
    M: two(date.getMinutes()),
    S: two(date.getSeconds()),
    '-d': String(date.getDate()),
    '-m': String(date.getMonth() + 1),
    '-I': String(hour),
    '-H': String(date.getHours()),
    '%': '%',
  };
  return format.replace(/%(-?[A-Za-z]|%)/g, (whole, directive: string) => directives[directive] ?? whole);
}
