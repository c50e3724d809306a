import { COSTS, type TemplateBudget } from './template-budget.js';
import { IntegerValue, type JinjaValue, ListValue, TextValue } from './template-runtime.js';

/** Costs of the operations of the template package. They are paid before the operation runs. */

/** Arguments of a filter or a method. */
export interface GivenArguments {
  positional: readonly JinjaValue[];
  named: ReadonlyMap<string, JinjaValue>;
}

/** Upper case may turn one character into three. */
const CAPITALS_GROWTH = 3;
/** A directive of strftime has two characters, is replaced by at most nine, and is found one by one. */
const DATE_GROWTH = COSTS.listedCharacter;

/** Pays for a call of a text's method. */
export function payForMethod(name: string, text: string, given: GivenArguments, budget: TemplateBudget): void {
  const [first, second] = given.positional;
  switch (name) {
    case 'startswith':
    case 'endswith':
      budget.read(first === undefined ? 0 : sizeOf(first));
      break;
    case 'split':
      budget.read(text.length);
      budget.spend(text.length + partsOf(text, first) * COSTS.item);
      break;
    case 'replace':
      payForReplacing(text, first, second, budget);
      break;
    default:
      budget.spend(text.length * CAPITALS_GROWTH);
  }
}

/** Pays for a filter of the package. */
export function payForFilter(name: string, value: JinjaValue, given: GivenArguments, budget: TemplateBudget): void {
  if (value instanceof TextValue) payForTextFilter(name, value.value, given, budget);
  else if (value instanceof ListValue) payForListFilter(name, value.value, given, budget);
  else if (value.value instanceof Map) {
    const { size } = value.value as Map<string, unknown>;
    const isNew = name !== 'length' && name !== 'get' && name !== 'default';
    if (isNew) budget.spend(size * Math.max(COSTS.item * 2, comparisonsOf(size)));
  }
}

function payForTextFilter(name: string, text: string, given: GivenArguments, budget: TemplateBudget): void {
  if (name === 'replace') payForReplacing(text, given.positional[0], given.positional[1], budget);
  else if (name === 'indent') {
    budget.read(text.length);
    const width = given.positional[0] ?? given.named.get('width');
    const lines = occurrences(text, '\n') + 1;
    const indented = width instanceof IntegerValue ? Number(width.value) : 4;
    budget.spend(text.length * 2 + lines * (COSTS.item + Math.max(0, indented)));
  } else if (name === 'int' || name === 'float') budget.read(text.length);
  else if (name !== 'length' && name !== 'safe' && name !== 'default' && name !== 'string') {
    budget.spend(text.length * CAPITALS_GROWTH);
  }
}

function payForListFilter(
  name: string,
  items: readonly JinjaValue[],
  { positional, named }: GivenArguments,
  budget: TemplateBudget,
): void {
  if (['length', 'first', 'last', 'list', 'default', 'safe'].includes(name)) return;
  const argumentSize = [...positional, ...named.values()].reduce((sum, value) => sum + sizeOf(value), 0);
  budget.spend(items.length * (COSTS.listedCharacter + argumentSize));
  if (name !== 'sort' && name !== 'unique') return;
  const texts = items.reduce((sum, { value }) => sum + (typeof value === 'string' ? value.length : 1), 0);
  const comparisons = name === 'sort' ? comparisonsOf(items.length) : 1;
  budget.spend(texts * comparisons + items.length * comparisons);
}

/** Comparisons for each item of a sorted list. */
function comparisonsOf(items: number): number {
  return 2 * (items + 1).toString(2).length;
}

/** Size of a value that a function copies. Objects and lists are copied without their contents. */
export function sizeOf({ value }: JinjaValue): number {
  if (typeof value === 'string' || Array.isArray(value)) return value.length;
  return value instanceof Map ? value.size : 1;
}

/** A function gets its arguments unchanged. Only a few functions read them: a date's format, a namespace's properties. */
export function payForCall(given: readonly JinjaValue[], budget: TemplateBudget): void {
  for (const value of given) {
    if (value instanceof TextValue) budget.read(value.value.length);
    else budget.spend(sizeOf(value) * COSTS.place);
  }
}

export function payForDate(format: string, budget: TemplateBudget): void {
  budget.spend(format.length * DATE_GROWTH);
}

function payForReplacing(
  text: string,
  from: JinjaValue | undefined,
  to: JinjaValue | undefined,
  budget: TemplateBudget,
): void {
  budget.read(text.length);
  const found = from instanceof TextValue ? occurrences(text, from.value) : 0;
  const growth = to instanceof TextValue ? to.value.length : 0;
  budget.spend(text.length + found * (growth + COSTS.listedCharacter));
}

/** Number of parts into which a text is split. */
function partsOf(text: string, separator: JinjaValue | undefined): number {
  if (separator instanceof TextValue) return occurrences(text, separator.value) + 1;
  let parts = 0;
  for (let at = 0, inside = false; at < text.length; at += 1) {
    const isSpace = /\s/.test(text[at] ?? '');
    if (!isSpace && !inside) parts += 1;
    inside = !isSpace;
  }
  return parts;
}

/** An empty part occurs before each character, and once at the end. */
function occurrences(text: string, part: string): number {
  if (part === '') return text.length + 1;
  let count = 0;
  for (let at = text.indexOf(part); at >= 0; at = text.indexOf(part, at + part.length)) count += 1;
  return count;
}
