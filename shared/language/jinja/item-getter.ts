import type { TemplateContext } from './context.js';
import { pythonText } from './print-python.js';
import { isInteger, Markup, TemplateError, Undefined, type Value } from './values.js';

export type Getter = (item: Value) => Value;

/**
 * The function that finds an attribute like `a.b.0` of an item. No attribute (None) is the item itself. `otherwise`: in place of what is undefined.
 */
export function itemGetter(attribute: Value, context: TemplateContext, otherwise: Value = null): Getter {
  const places = placesOf(attribute, context);
  return (item) =>
    places.reduce((found, place) => {
      const next = context.item(found, place);
      return next instanceof Undefined && otherwise !== null ? otherwise : next;
    }, item);
}

/** As itemGetter, for several attributes with commas between them: the result is a list. */
export function itemsGetter(attribute: Value, context: TemplateContext): (item: Value) => Value[] {
  const attributes = typeof attribute === 'string' ? attribute.split(',') : [attribute];
  const getters = attributes.map((one) => itemGetter(one, context));
  return (item) => getters.map((get) => get(item));
}

function placesOf(attribute: Value, { budget }: TemplateContext): Value[] {
  if (attribute === null) return [];
  if (isInteger(attribute)) return [attribute];
  if (typeof attribute !== 'string')
    throw new TemplateError(`${pythonText(attribute, budget)} is not the name of an attribute`);
  return attribute.split('.').map((part) => (/^\d+$/.test(part) ? Number(part) : part));
}

/** Texts without their case, as most filters compare them. */
export function withoutCase(value: Value): Value {
  if (typeof value === 'string') return value.toLowerCase();
  return value instanceof Markup ? new Markup(value.text.toLowerCase()) : value;
}
