import { JsonFloat } from '../../base/json/exact-json.js';
import { isNumber, toBigInt } from './numbers.js';
import type { TemplateBudget } from './template-budget.js';
import {
  Dict,
  DictView,
  Generator,
  isInteger,
  Markup,
  Range,
  TemplateError,
  textOf,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from './values.js';

/** Most levels of nested lists and objects that are compared. */
const DEPTH_LIMIT = 600;

export function isTrue(value: Value): boolean {
  if (value === null || value instanceof Undefined) return false;
  if (value instanceof JsonFloat) return value.value !== 0;
  if (Array.isArray(value)) return value.length > 0;
  if (value instanceof Tuple) return value.items.length > 0;
  if (value instanceof Dict) return value.size > 0;
  if (value instanceof DictView) return value.dict.size > 0;
  if (value instanceof Range) return value.length > 0;
  if (value instanceof Markup) return value.text !== '';
  return typeof value === 'object' ? true : Boolean(value);
}

/** Python's ==. */
export function areEqual(a: Value, b: Value, budget: TemplateBudget, depth = 0): boolean {
  if (a === b && typeof a !== 'string') return true;
  budget.spend(1);
  if (depth > DEPTH_LIMIT)
    throw new TemplateError(`more than ${DEPTH_LIMIT} lists and objects stand within one another`);
  if (isNumber(a)) return isNumber(b) && compareNumbers(a, b) === 0;
  const [left, right] = [textOf(a), textOf(b)];
  if (left !== null || right !== null) {
    if (left?.length === right?.length) budget.read(left?.length ?? 0);
    return left === right;
  }
  if (a instanceof Undefined) return b instanceof Undefined;
  if (Array.isArray(a)) return Array.isArray(b) && haveEqualItems(a, b, budget, depth);
  if (a instanceof Tuple) return b instanceof Tuple && haveEqualItems(a.items, b.items, budget, depth);
  if (a instanceof Range) return b instanceof Range && areEqualRanges(a, b);
  if (a instanceof DictView) {
    if (!(b instanceof DictView) || a.kind === 'values' || b.kind === 'values') return false;
    return a.dict.size === b.dict.size && a.list().every((item) => contains(b, item, budget));
  }
  if (!(a instanceof Dict && b instanceof Dict) || a.size !== b.size) return false;
  for (const [key, value] of a.items()) {
    const other = b.get(key);
    if (other === undefined || !areEqual(value, other, budget, depth + 1)) return false;
  }
  return true;
}

function haveEqualItems(a: readonly Value[], b: readonly Value[], budget: TemplateBudget, depth: number): boolean {
  return a.length === b.length && a.every((item, index) => areEqual(item, b[index] ?? null, budget, depth + 1));
}

function areEqualRanges(a: Range, b: Range): boolean {
  if (a.length !== b.length) return false;
  return a.length === 0 || (a.start === b.start && (a.length === 1 || a.step === b.step));
}

/** Below, at or above zero as `a` is below, at or above `b`; NaN if one is. */
function compareNumbers(a: number | bigint | boolean | JsonFloat, b: number | bigint | boolean | JsonFloat): number {
  const [left, right] = [a instanceof JsonFloat ? a.value : a, b instanceof JsonFloat ? b.value : b];
  // JavaScript compares both kinds of numbers exactly.
  return left < right ? -1 : left > right ? 1 : Number(left) === Number(right) || left === right ? 0 : NaN;
}

/** The order of two values, as compareNumbers. Throws TemplateError if they have none. */
export function orderOf(a: Value, b: Value, sign: string, budget: TemplateBudget, depth = 0): number {
  budget.spend(1);
  if (depth > DEPTH_LIMIT) throw new TemplateError(`more than ${DEPTH_LIMIT} lists stand within one another`);
  if (isNumber(a) && isNumber(b)) return compareNumbers(a, b);
  const [left, right] = [textOf(a), textOf(b)];
  if (left !== null && right !== null) {
    budget.read(Math.min(left.length, right.length));
    return compareTexts(left, right);
  }
  const items =
    Array.isArray(a) && Array.isArray(b)
      ? [a, b]
      : a instanceof Tuple && b instanceof Tuple
        ? [a.items, b.items]
        : null;
  if (items === null) {
    throw new TemplateError(`'${sign}' not supported between instances of '${typeName(a)}' and '${typeName(b)}'`);
  }
  const [first = [], second = []] = items;
  for (let index = 0; index < Math.min(first.length, second.length); index += 1) {
    const [x = null, y = null] = [first[index], second[index]];
    if (!areEqual(x, y, budget, depth + 1)) return orderOf(x, y, sign, budget, depth + 1);
  }
  return first.length - second.length;
}

/** Characters outside the first plane have two units, whose values are below those of some characters of one unit. */
function compareTexts(a: string, b: string): number {
  let at = 0;
  while (at < a.length && at < b.length && a[at] === b[at]) at += 1;
  if (at >= a.length || at >= b.length) return a.length - b.length;
  const isSurrogate = (unit: number): boolean => unit >= 0xd800 && unit < 0xe000;
  const [x, y] = [a.charCodeAt(at), b.charCodeAt(at)];
  return isSurrogate(x) === isSurrogate(y) ? x - y : isSurrogate(x) ? 1 : -1;
}

/** Python's `item in container`. */
export function contains(container: Value, item: Value, budget: TemplateBudget): boolean {
  const text = textOf(container);
  if (text !== null) {
    const part = textOf(item);
    if (part === null) throw new TemplateError(`'in <string>' requires string as left operand, not ${typeName(item)}`);
    budget.read(text.length + part.length);
    return text.includes(part);
  }
  budget.read(textOf(item)?.length ?? 0);
  if (container instanceof Dict) return container.has(item);
  if (container instanceof Undefined) return false;
  if (container instanceof Range) {
    if (!isNumber(item)) return false;
    const steps = (Number(item instanceof JsonFloat ? item.value : item) - container.start) / container.step;
    return Number.isInteger(steps) && steps >= 0 && steps < container.length;
  }
  if (container instanceof DictView && container.kind === 'keys') return container.dict.has(item);
  const items = Array.isArray(container)
    ? container
    : container instanceof Tuple
      ? container.items
      : container instanceof DictView
        ? container.list()
        : container instanceof Generator
          ? [...(container.values as IterableIterator<Value>)]
          : null;
  if (items === null) throw new TemplateError(`argument of type '${typeName(container)}' is not iterable`);
  budget.read(items.length);
  return items.some((other) => areEqual(other, item, budget));
}

/** Python's `is`. Equal texts and numbers are one object, as they mostly are in Python. */
export function areSame(a: Value, b: Value): boolean {
  if (a instanceof JsonFloat && b instanceof JsonFloat) return Object.is(a.value, b.value);
  if (isInteger(a) && isInteger(b))
    return typeof a === 'boolean' || typeof b === 'boolean' ? a === b : toBigInt(a) === toBigInt(b);
  return a === b;
}
