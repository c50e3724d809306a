import { toPlace } from './numbers.js';
import { pythonText } from './print-python.js';
import { listOf } from './sequences.js';
import { dateText, DATE_GROWTH } from './dates.js';
import { COSTS, type TemplateBudget, TemplateLimitError } from './template-budget.js';
import {
  Callable,
  Dict,
  type Given,
  Namespace,
  Properties,
  Range,
  TemplateError,
  textOf,
  Tuple,
  type Value,
} from './values.js';

/** Most numbers of a range, as in the sandbox of transformers. */
const RANGE_LIMIT = 100_000;

/** Names that a template finds in addition to its variables. `wallMs`: the time that the template sees. */
export function globalsOf(budget: TemplateBudget, wallMs: number): readonly (readonly [name: string, value: Value])[] {
  const functions: readonly (readonly [string, (given: Given) => Value, string?])[] = [
    ['range', (given) => rangeOf(given, budget)],
    ['dict', (given) => dictOf(given, budget), "<class 'dict'>"],
    ['namespace', (given) => new Namespace(dictOf(given, budget)), "<class 'jinja2.utils.Namespace'>"],
    ['cycler', (given) => new Cycler(given.unnamed('cycler', 0, Infinity)), "<class 'jinja2.utils.Cycler'>"],
    ['joiner', (given) => new Joiner(given.bound('joiner', ['sep'])[0] ?? ', '), "<class 'jinja2.utils.Joiner'>"],
    ['raise_exception', (given) => raise(given, budget)],
    ['strftime_now', (given) => now(given, budget, wallMs)],
    ['lipsum', refuseLipsum],
  ];
  return functions.map(([name, call, printed]) => [name, new Callable(name, call, printed)]);
}

function rangeOf(given: Given, budget: TemplateBudget): Range {
  const [first = 0, second, third = 1] = given.unnamed('range', 1, 3);
  const [start, stop] = second === undefined ? [0, toPlace(first)] : [toPlace(first), toPlace(second)];
  const step = toPlace(third);
  if (step === 0) throw new TemplateError('range() step must not be zero');
  const range = new Range(start, stop, step);
  if (range.length > RANGE_LIMIT) throw new TemplateLimitError(`a range of more than ${RANGE_LIMIT} numbers`);
  budget.spend(range.length * COSTS.item);
  return range;
}

function dictOf(given: Given, budget: TemplateBudget): Dict {
  if (given.positional.length > 1) throw new TemplateError('dict expected at most 1 argument');
  const [from = null] = given.positional;
  const dict = new Dict();
  if (from instanceof Dict) {
    budget.spend(from.size * COSTS.item * 2);
    for (const [key, value] of from.items()) dict.set(key, value);
  } else if (given.positional.length > 0) {
    for (const pair of listOf(from, budget)) {
      budget.spend(COSTS.item * 2);
      const [key, value, ...more] = listOf(pair, budget);
      if (key === undefined || value === undefined || more.length > 0) throw new TemplateError('a dict needs pairs');
      dict.set(key, value);
    }
  }
  for (const [name, value] of given.named) dict.set(name, value);
  return dict;
}

function raise(given: Given, budget: TemplateBudget): never {
  const [message = null] = given.bound('raise_exception', ['message'], 1);
  throw new TemplateError(pythonText(message, budget));
}

function now(given: Given, budget: TemplateBudget, wallMs: number): string {
  const [format] = given.bound('strftime_now', ['format'], 1);
  const text = textOf(format);
  if (text === null) throw new TemplateError('strftime_now needs the text of a format');
  budget.spend(text.length * DATE_GROWTH);
  return dateText(wallMs, text);
}

function refuseLipsum(): never {
  throw new TemplateError('lipsum is refused: the same conversation must have the same prompt');
}

/** Goes round through its items. */
class Cycler extends Properties {
  readonly typeName = 'Cycler';
  private at = 0;

  constructor(private readonly items: readonly Value[]) {
    super();
    if (items.length === 0) throw new TemplateError('at least one item has to be provided');
  }

  property(name: string): Value | undefined {
    const current = (): Value => this.items[this.at] ?? null;
    if (name === 'current') return current();
    if (name === 'pos') return this.at;
    if (name === 'items') return new Tuple(this.items);
    if (name === 'reset') {
      return new Callable(name, (given) => {
        given.unnamed(name, 0, 0);
        this.at = 0;
        return null;
      });
    }
    if (name !== 'next') return undefined;
    return new Callable(name, (given) => {
      given.unnamed(name, 0, 0);
      const item = current();
      this.at = (this.at + 1) % this.items.length;
      return item;
    });
  }

  printed(): string {
    return '<jinja2.utils.Cycler object>';
  }
}

/** Gives nothing the first time, and then its text. */
class Joiner extends Properties {
  readonly typeName = 'Joiner';
  private isUsed = false;

  constructor(private readonly separator: Value) {
    super();
  }

  property(name: string): Value | undefined {
    if (name === 'sep') return this.separator;
    return name === 'used' ? this.isUsed : undefined;
  }

  override call(given: Given): Value {
    given.unnamed('joiner', 0, 0);
    if (this.isUsed) return this.separator;
    this.isUsed = true;
    return '';
  }

  printed(): string {
    return '<jinja2.utils.Joiner object>';
  }
}
