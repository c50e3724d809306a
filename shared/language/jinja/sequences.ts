import { characterCount, isPlain } from './characters.js';
import { toPlace } from './numbers.js';
import { COSTS, type TemplateBudget } from './template-budget.js';
import {
  Dict,
  DictView,
  Generator,
  Markup,
  Namespace,
  Range,
  TemplateError,
  textOf,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from './values.js';

/** Size of a value that an operation reads or copies: characters or items. Lists are copied without their contents. */
export function sizeOf(value: Value | undefined): number {
  if (typeof value === 'string' || Array.isArray(value)) return value.length;
  if (value instanceof Markup) return value.text.length;
  if (value instanceof Tuple) return value.items.length;
  if (value instanceof Dict) return value.size;
  if (value instanceof DictView) return value.dict.size;
  if (value instanceof Namespace) return value.properties.size;
  return value instanceof Range ? value.length : 1;
}

/** Python's len(). Throws TemplateError if the value has none. */
export function lengthOf(value: Value): number {
  const text = textOf(value);
  if (text !== null) return characterCount(text);
  if (value instanceof Undefined) return 0;
  if (!hasLength(value)) throw new TemplateError(`object of type '${typeName(value)}' has no len()`);
  return sizeOf(value);
}

export function hasLength(value: Value): boolean {
  if (textOf(value) !== null || value instanceof Undefined || Array.isArray(value)) return true;
  return value instanceof Tuple || value instanceof Dict || value instanceof DictView || value instanceof Range;
}

export function isIterable(value: Value): boolean {
  return hasLength(value) || value instanceof Generator;
}

/** The items of a value, for which a loop or a filter asks one by one. Throws TemplateError if it has none. */
export function iterate(value: Value, budget: TemplateBudget): Iterator<Value> {
  if (value instanceof Generator) return value.values;
  return listOf(value, budget).values();
}

/** All items of a value. The list is not to be changed. Throws TemplateError if it has none. */
export function listOf(value: Value, budget: TemplateBudget): readonly Value[] {
  if (Array.isArray(value)) return value;
  if (value instanceof Tuple) return value.items;
  if (value instanceof Undefined) return [];
  const text = textOf(value);
  if (text !== null) {
    budget.spend(text.length * COSTS.listedCharacter);
    return [...text];
  }
  if (value instanceof Generator) return collected(value.values, budget);
  if (value instanceof Range) {
    budget.spend(value.length * COSTS.place);
    return Array.from({ length: value.length }, (_, index) => value.start + index * value.step);
  }
  if (value instanceof Dict || value instanceof DictView) {
    budget.spend(sizeOf(value) * COSTS.item * 2);
    return value instanceof Dict ? value.keys() : value.list();
  }
  throw new TemplateError(`'${typeName(value)}' object is not iterable`);
}

function collected(values: Iterator<Value>, budget: TemplateBudget): Value[] {
  const items: Value[] = [];
  for (let next = values.next(); next.done !== true; next = values.next()) {
    budget.spend(COSTS.place);
    items.push(next.value);
  }
  return items;
}

/** The item at a place that may count from the end; undefined: there is none, or the value has no places. */
export function itemAt(value: Value, place: Value): Value | undefined {
  if (typeof place !== 'number' && typeof place !== 'bigint' && typeof place !== 'boolean') return undefined;
  const at = (length: number): number => (toPlace(place) < 0 ? toPlace(place) + length : toPlace(place));
  if (value instanceof Range) {
    const index = at(value.length);
    return index >= 0 && index < value.length ? value.start + index * value.step : undefined;
  }
  const text = textOf(value);
  const items = text === null ? itemsOf(value) : isPlain(text) ? text : [...text];
  return items?.[at(items.length)];
}

function itemsOf(value: Value): readonly Value[] | null {
  return Array.isArray(value) ? value : value instanceof Tuple ? value.items : null;
}

/** Python's value[start:stop:step]. Throws TemplateError if the value has no places. */
export function sliceOf(value: Value, bounds: readonly Value[], budget: TemplateBudget): Value {
  const [start = null, stop = null, step = null] = bounds;
  const by = step === null ? 1 : toPlace(step);
  if (by === 0) throw new TemplateError('slice step cannot be zero');
  const text = textOf(value);
  if (text !== null) {
    const cut = textSlice(text, start, stop, by, budget);
    return value instanceof Markup ? new Markup(cut) : cut;
  }
  if (value instanceof Range) {
    const [first, count] = placesOf(value.length, start, stop, by);
    const begin = value.start + first * value.step;
    budget.spend(count * COSTS.place);
    return new Range(begin, begin + count * by * value.step, by * value.step);
  }
  const items = itemsOf(value);
  if (items === null) throw new TemplateError(`'${typeName(value)}' object is not subscriptable by a slice`);
  const [first, count] = placesOf(items.length, start, stop, by);
  budget.spend(count * COSTS.place);
  const taken =
    by === 1
      ? items.slice(first, first + count)
      : Array.from({ length: count }, (_, index) => items[first + index * by] ?? null);
  return value instanceof Tuple ? new Tuple(taken) : taken;
}

function textSlice(text: string, start: Value, stop: Value, by: number, budget: TemplateBudget): string {
  budget.read(text.length);
  if (by === 1 && isPlain(text)) {
    const [first, count] = placesOf(text.length, start, stop, by);
    budget.spend(count * COSTS.character);
    return text.slice(first, first + count);
  }
  budget.spend(text.length * COSTS.listedCharacter);
  const characters = [...text];
  const [first, count] = placesOf(characters.length, start, stop, by);
  return Array.from({ length: count }, (_, index) => characters[first + index * by]).join('');
}

/** The first place of a slice, and the number of its places. */
export function placesOf(length: number, start: Value, stop: Value, by: number): [first: number, count: number] {
  const [lowest, highest] = by > 0 ? [0, length] : [-1, length - 1];
  const place = (given: Value, otherwise: number): number => {
    if (given === null) return otherwise;
    const at = toPlace(given);
    return Math.max(lowest, Math.min(highest, at < 0 ? at + length : at));
  };
  const first = place(start, by > 0 ? lowest : highest);
  const end = place(stop, by > 0 ? highest : lowest);
  return [first, Math.max(0, Math.ceil((end - first) / by))];
}
