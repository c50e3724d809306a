import { JsonFloat } from '../../base/json/exact-json.js';
import { areEqual, isTrue } from './compare.js';
import type { TemplateContext } from './context.js';
import { escapedText } from './markup.js';
import { toBigInt, toPlace } from './numbers.js';
import { itemAt, listOf, sizeOf } from './sequences.js';
import { COSTS } from './template-budget.js';
import { textMethod } from './text-methods.js';
import {
  Callable,
  defined,
  Dict,
  DictView,
  Given,
  Group,
  isInteger,
  Markup,
  Namespace,
  Properties,
  Range,
  TemplateError,
  textOf,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from './values.js';

const HIDDEN_NAME = /^__\w+__$/;
/** Methods that would change a value. The sandbox of transformers hides them. */
const CHANGING_METHODS: ReadonlySet<string> = new Set(['clear', 'pop', 'popitem', 'setdefault', 'update']);

/** Jinja's `object.name`: an attribute, or else an item. Throws TemplateError for an undefined value. */
export function attributeOf(object: Value, name: string, context: TemplateContext): Value {
  // Python has such attributes for every value, and the sandbox hides them.
  if (object instanceof Undefined && HIDDEN_NAME.test(name))
    return new Undefined(`access to attribute ${name} is unsafe`);
  requireDefined(object);
  const own = ownAttribute(object, name, context);
  return defined(own === undefined ? dictItem(object, name) : own, missing(object, name));
}

/** Jinja's `object[place]`: an item, or else an attribute. Throws TemplateError for an undefined value. */
export function itemOf(object: Value, place: Value, context: TemplateContext): Value {
  requireDefined(object);
  const text = textOf(object);
  if (text !== null) context.budget.read(text.length);
  context.budget.read(sizeOf(place));
  const item = object instanceof Dict ? dictItem(object, place) : itemAt(object, place);
  if (item !== undefined) return object instanceof Markup ? asMarkup(item) : item;
  const name = textOf(place);
  const own = name === null ? undefined : ownAttribute(object, name, context);
  return defined(own, missing(object, name ?? 'an item'));
}

/** Only the attribute, as the filter attr finds it. */
export function attributeAlone(object: Value, name: string, context: TemplateContext): Value {
  requireDefined(object);
  return defined(ownAttribute(object, name, context), missing(object, name));
}

function requireDefined(object: Value): void {
  if (object instanceof Undefined) throw new TemplateError(object.what);
}

function missing(object: Value, name: string): string {
  return `a ${typeName(object)} has no attribute ${name}`;
}

function dictItem(object: Value, place: Value): Value | undefined {
  if (!(object instanceof Dict)) return undefined;
  try {
    return object.get(place);
  } catch (thrown) {
    // Only a value that cannot be a key is refused.
    if (thrown instanceof TemplateError) return undefined;
    throw thrown;
  }
}

/** undefined: the value has no such attribute. */
function ownAttribute(object: Value, name: string, context: TemplateContext): Value | undefined {
  const text = textOf(object);
  if (text !== null) {
    const method = textMethod(name);
    if (method === null) return undefined;
    const isMarkup = object instanceof Markup;
    return new Callable(name, (given) => {
      const taken = isMarkup && name === 'join' ? withEscapedItems(given, context) : given;
      const result = method(text, taken, context);
      return isMarkup ? asMarkup(result) : result;
    });
  }
  if (object instanceof Dict) return dictAttribute(object, name, context);
  if (object instanceof Namespace) return object.properties.get(name);
  if (object instanceof Properties) return object.property(name);
  if (Array.isArray(object) || object instanceof Tuple || object instanceof Range)
    return listAttribute(object, name, context);
  if (object instanceof DictView && name === 'mapping') return object.dict;
  return numberAttribute(object, name);
}

/** Texts in the results of markup's methods are markup. */
function asMarkup(value: Value): Value {
  if (typeof value === 'string') return new Markup(value);
  if (Array.isArray(value)) return value.map(asMarkup);
  return value instanceof Tuple ? new Tuple(value.items.map(asMarkup)) : value;
}

function withEscapedItems(given: Given, { budget }: TemplateContext): Given {
  const [items = null] = given.unnamed('join', 1, 1);
  return new Given([listOf(items, budget).map((item) => escapedText(item, budget))], given.named);
}

function dictAttribute(dict: Dict, name: string, { budget }: TemplateContext): Value | undefined {
  const method = (call: (given: Given) => Value): Callable => new Callable(name, call);
  const view = (kind: 'keys' | 'values' | 'items'): Callable =>
    method((given) => {
      given.unnamed(name, 0, 0);
      return new DictView(dict, kind);
    });
  switch (name) {
    case 'keys':
    case 'values':
    case 'items':
      return view(name);
    case 'get':
      return method((given) => {
        const [key = null, otherwise = null] = given.unnamed(name, 1, 2);
        budget.read(sizeOf(key));
        const value = dict.get(key);
        return value === undefined ? otherwise : value;
      });
    case 'copy':
      return method((given) => {
        given.unnamed(name, 0, 0);
        budget.spend(dict.size * COSTS.item * 2);
        return Dict.of(dict.items());
      });
    default:
      return CHANGING_METHODS.has(name) ? new Undefined(`access to attribute ${name} of a dict is unsafe`) : undefined;
  }
}

function listAttribute(list: Value[] | Tuple | Range, name: string, { budget }: TemplateContext): Value | undefined {
  if (list instanceof Group && name === 'grouper') return list.grouper;
  if (list instanceof Group && name === 'list') return list.list;
  if (list instanceof Range && (name === 'start' || name === 'stop' || name === 'step')) return list[name];
  if (name === 'copy' && Array.isArray(list)) {
    return new Callable(name, (given) => {
      given.unnamed(name, 0, 0);
      budget.spend(list.length * COSTS.place);
      return [...list];
    });
  }
  if (name === 'count') {
    return new Callable(name, (given) => {
      const [wanted = null] = given.unnamed(name, 1, 1);
      return listOf(list, budget).filter((item) => areEqual(item, wanted, budget)).length;
    });
  }
  if (name !== 'index') return undefined;
  return new Callable(name, (given) => {
    const [wanted = null, start = 0, stop = Number.MAX_SAFE_INTEGER] = given.unnamed(name, 1, 3);
    const items = listOf(list, budget);
    const place = (at: Value): number => (toPlace(at) < 0 ? Math.max(0, toPlace(at) + items.length) : toPlace(at));
    const found = items.findIndex(
      (item, index) => index >= place(start) && index < place(stop) && areEqual(item, wanted, budget),
    );
    if (found < 0) throw new TemplateError('the value is not in the list');
    return found;
  });
}

function numberAttribute(object: Value, name: string): Value | undefined {
  const result = (value: Value): Callable =>
    new Callable(name, (given) => {
      given.unnamed(name, 0, 0);
      return value;
    });
  if (object instanceof JsonFloat) {
    if (name === 'is_integer') return result(Number.isInteger(object.value));
    return name === 'real' ? object : name === 'imag' ? new JsonFloat(0) : undefined;
  }
  if (!isInteger(object)) return undefined;
  if (name === 'real' || name === 'numerator') return typeof object === 'boolean' ? Number(object) : object;
  if (name === 'imag') return 0;
  if (name === 'denominator') return 1;
  if (name !== 'bit_length') return undefined;
  const size = toBigInt(object);
  return result(isTrue(object) ? (size < 0n ? -size : size).toString(2).length : 0);
}
