import { areEqual, isTrue, orderOf } from './compare.js';
import type { Filter, TemplateContext } from './context.js';
import { itemGetter, itemsGetter, withoutCase } from './item-getter.js';
import { requireText, toPlace } from './numbers.js';
import { mathResult } from './operations.js';
import { pythonText } from './print-python.js';
import { iterate, listOf, sizeOf } from './sequences.js';
import { COSTS } from './template-budget.js';
import {
  defined,
  Dict,
  Generator,
  Given,
  Group,
  hashOf,
  TemplateError,
  textOf,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from './values.js';

/** Jinja's filters of lists and dictionaries. */

/** Items of a value, each of which is paid for as it is made. */
function generated(make: () => Iterable<Value>): Generator {
  // Nothing runs before the first item is asked for.
  const run = function* (): Generator1 {
    yield* make();
  };
  return new Generator(run());
}
type Generator1 = globalThis.Generator<Value, void>;

function* each(value: Value, context: TemplateContext): Generator1 {
  const values = iterate(value, context.budget);
  for (let next = values.next(); next.done !== true; next = values.next()) {
    context.budget.step();
    context.budget.spend(COSTS.listedCharacter);
    yield next.value;
  }
}

const join: Filter = (value, given, context) => {
  const [separatorGiven = '', attribute = null] = given.bound('join', ['d', 'attribute']);
  const { budget } = context;
  const separator = pythonText(separatorGiven, budget);
  const get = itemGetter(attribute, context);
  const texts = listOf(value, budget).map((item) => {
    const text = pythonText(get(item), budget);
    budget.spend(text.length + separator.length + COSTS.place);
    return text;
  });
  return texts.join(separator);
};

const first: Filter = (value, given, { budget }) => {
  given.bound('first', []);
  const text = textOf(value);
  const next = text === null ? iterate(value, budget).next() : text[Symbol.iterator]().next();
  return next.done === true ? new Undefined('No first item, sequence was empty.') : next.value;
};

const last: Filter = (value, given, { budget }) => {
  given.bound('last', []);
  if (value instanceof Generator) throw new TemplateError("'generator' object is not reversible");
  return defined(listOf(value, budget).at(-1), 'No last item, sequence was empty.');
};

const list: Filter = (value, given, { budget }) => {
  given.bound('list', []);
  budget.spend(sizeOf(value) * COSTS.place);
  return [...listOf(value, budget)];
};

const reverse: Filter = (value, given, { budget }) => {
  given.bound('reverse', []);
  const text = textOf(value);
  budget.spend(sizeOf(value) * (text === null ? COSTS.place : COSTS.listedCharacter));
  if (text !== null) return [...text].reverse().join('');
  const items = [...listOf(value, budget)].reverse();
  return value instanceof Generator ? items : new Generator(items.values());
};

const sort: Filter = (value, given, context) => {
  const names = ['reverse', 'case_sensitive', 'attribute'];
  const [isReversed = false, isSensitive = false, attribute = null] = given.bound('sort', names);
  const get = itemsGetter(attribute, context);
  const key = (item: Value): Value[] => (isTrue(isSensitive) ? get(item) : get(item).map(withoutCase));
  return sorted(listOf(value, context.budget), key, isTrue(isReversed), context);
};

function sorted(
  items: readonly Value[],
  key: (item: Value) => Value,
  isReversed: boolean,
  { budget }: TemplateContext,
): Value[] {
  budget.spend(items.length * COSTS.item);
  const keyed = items.map((item) => ({ item, key: key(item) }));
  keyed.sort((a, b) => (isReversed ? orderOf(b.key, a.key, '<', budget) : orderOf(a.key, b.key, '<', budget)) || 0);
  return keyed.map(({ item }) => item);
}

const dictsort: Filter = (value, given, context) => {
  const [isSensitive = false, by = 'key', isReversed = false] = given.bound('dictsort', [
    'case_sensitive',
    'by',
    'reverse',
  ]);
  if (!(value instanceof Dict)) throw new TemplateError(`'${typeName(value)}' object has no attribute 'items'`);
  if (by !== 'key' && by !== 'value') throw new TemplateError('You can only sort by either "key" or "value"');
  const place = by === 'key' ? 0 : 1;
  const key = (item: Value): Value => {
    const part = (item instanceof Tuple ? item.items[place] : undefined) ?? null;
    return isTrue(isSensitive) ? part : withoutCase(part);
  };
  const items = [...value.items()].map((entry) => new Tuple([...entry]));
  return sorted(items, key, isTrue(isReversed), context);
};

const unique: Filter = (value, given, context) => {
  const [isSensitive = false, attribute = null] = given.bound('unique', ['case_sensitive', 'attribute']);
  const get = itemGetter(attribute, context);
  return generated(function* () {
    const seen = new Set<unknown>();
    for (const item of each(value, context)) {
      const key = get(item);
      context.budget.read(sizeOf(key));
      const hashed = hashOf(isTrue(isSensitive) ? key : withoutCase(key));
      if (seen.has(hashed)) continue;
      seen.add(hashed);
      yield item;
    }
  });
};

function extreme(name: 'min' | 'max'): Filter {
  return (value, given, context) => {
    const [isSensitive = false, attribute = null] = given.bound(name, ['case_sensitive', 'attribute']);
    const get = itemGetter(attribute, context);
    let best: { item: Value; key: Value } | null = null;
    for (const item of each(value, context)) {
      const key = isTrue(isSensitive) ? get(item) : withoutCase(get(item));
      if (best === null) best = { item, key };
      else {
        const order = orderOf(key, best.key, name === 'min' ? '<' : '>', context.budget);
        if (name === 'min' ? order < 0 : order > 0) best = { item, key };
      }
    }
    return best === null ? new Undefined('No aggregated item, sequence was empty.') : best.item;
  };
}

const sum: Filter = (value, given, context) => {
  const [attribute = null, start = 0] = given.bound('sum', ['attribute', 'start']);
  if (textOf(start) !== null) throw new TemplateError("sum() can't sum strings [use ''.join(seq) instead]");
  const get = itemGetter(attribute, context);
  let total = start;
  for (const item of each(value, context)) total = mathResult('+', total, get(item), context.budget);
  return total;
};

const groupby: Filter = (value, given, context) => {
  const names = ['attribute', 'default', 'case_sensitive'];
  const [attribute = null, otherwise = null, isSensitive = false] = given.bound('groupby', names, 1);
  const get = itemGetter(attribute, context, otherwise);
  const key = (item: Value): Value => (isTrue(isSensitive) ? get(item) : withoutCase(get(item)));
  const groups: { key: Value; items: Value[] }[] = [];
  for (const item of sorted(listOf(value, context.budget), key, false, context)) {
    const own = key(item);
    const group = groups.at(-1);
    if (group !== undefined && areEqual(group.key, own, context.budget)) group.items.push(item);
    else groups.push({ key: own, items: [item] });
  }
  return groups.map(({ items }) => new Group(get(items[0] ?? null), items));
};

const batch: Filter = (value, given, context) => {
  const [count = 0, fill = null] = given.bound('batch', ['linecount', 'fill_with'], 1);
  return generated(function* () {
    const size = toPlace(count);
    let row: Value[] = [];
    for (const item of each(value, context)) {
      if (row.length === size) {
        yield row;
        row = [];
      }
      row.push(item);
    }
    if (row.length === 0) return;
    if (fill !== null && row.length < size) {
      context.budget.spend((size - row.length) * COSTS.place);
      while (row.length < size) row.push(fill);
    }
    yield row;
  });
};

const slice: Filter = (value, given, context) => {
  const [count = 0, fill = null] = given.bound('slice', ['slices', 'fill_with'], 1);
  return generated(function* () {
    const items = [...each(value, context)];
    const slices = toPlace(count);
    if (slices === 0) throw new TemplateError('integer division or modulo by zero');
    const size = Math.floor(items.length / slices);
    const larger = items.length - size * slices;
    for (let at = 0, start = 0; at < slices; at += 1) {
      context.budget.spend(COSTS.item);
      const end = start + size + (at < larger ? 1 : 0);
      const part = items.slice(start, end);
      if (fill !== null && at >= larger) part.push(fill);
      yield part;
      start = end;
    }
  });
};

const items: Filter = (value, given, context) => {
  given.bound('items', []);
  return generated(function* () {
    if (value instanceof Undefined) return;
    if (!(value instanceof Dict)) throw new TemplateError('Can only get item pairs from a mapping.');
    context.budget.spend(value.size * COSTS.item * 2);
    for (const entry of value.items()) yield new Tuple([...entry]);
  });
};

const map: Filter = (value, given, context) => {
  const make = (): ((item: Value) => Value) => {
    if (given.positional.length === 0 && given.named.has('attribute')) {
      const [attribute = null, otherwise = null] = given.bound('map', ['attribute', 'default']);
      return itemGetter(attribute, context, otherwise);
    }
    const [name, ...more] = given.positional;
    if (name === undefined) throw new TemplateError('map requires a filter argument');
    const filterName = requireText(name, 'the name of a filter');
    const passed = new Given(more, given.named);
    return (item) => context.filter(filterName, item, passed);
  };
  return generated(function* () {
    if (!isTrue(value)) return;
    const change = make();
    for (const item of each(value, context)) yield change(item);
  });
};

/** The filters that keep the items for which a test has the result `keeps`. */
function selecting(called: string, keeps: boolean, byAttribute: boolean): Filter {
  return (value, given, context) =>
    generated(function* () {
      if (!isTrue(value)) return;
      const [attribute, ...others] = byAttribute ? given.positional : [null, ...given.positional];
      if (attribute === undefined) throw new TemplateError(`${called}: Missing parameter for attribute name`);
      const get = itemGetter(attribute, context);
      const [name, ...more] = others;
      const passed = new Given(more, given.named);
      const testName = name === undefined ? null : requireText(name, 'the name of a test');
      for (const item of each(value, context)) {
        const part = get(item);
        const isPassed = testName === null ? isTrue(part) : context.test(testName, part, passed);
        if (isPassed === keeps) yield item;
      }
    });
}

export const LIST_FILTERS: readonly (readonly [name: string, filter: Filter])[] = [
  ['join', join],
  ['first', first],
  ['last', last],
  ['list', list],
  ['reverse', reverse],
  ['sort', sort],
  ['dictsort', dictsort],
  ['unique', unique],
  ['min', extreme('min')],
  ['max', extreme('max')],
  ['sum', sum],
  ['groupby', groupby],
  ['batch', batch],
  ['slice', slice],
  ['items', items],
  ['map', map],
  ['select', selecting('select', true, false)],
  ['reject', selecting('reject', false, false)],
  ['selectattr', selecting('selectattr', true, true)],
  ['rejectattr', selecting('rejectattr', false, true)],
];
