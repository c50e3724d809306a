import { attributeAlone } from './attributes.js';
import { isTrue } from './compare.js';
import type { Filter } from './context.js';
import { LIST_FILTERS } from './filters-lists.js';
import { NUMBER_FILTERS } from './filters-numbers.js';
import { TEXT_FILTERS } from './filters-text.js';
import { jsonText } from './json-text.js';
import { requireText } from './numbers.js';
import { prettyText } from './pretty-print.js';
import { lengthOf } from './sequences.js';
import { TemplateError, Undefined } from './values.js';

const length: Filter = (value, given) => {
  given.bound('length', []);
  return lengthOf(value);
};

const defaultFilter: Filter = (value, given) => {
  const [otherwise = '', boolean = false] = given.bound('default', ['default_value', 'boolean']);
  return value instanceof Undefined || (isTrue(boolean) && !isTrue(value)) ? otherwise : value;
};

const attr: Filter = (value, given, context) => {
  const [name] = given.bound('attr', ['name'], 1);
  return attributeAlone(value, requireText(name, 'the name of an attribute'), context);
};

const random: Filter = () => {
  throw new TemplateError('the filter random is refused: the same conversation must have the same prompt');
};

const pprint: Filter = (value, given, { budget }) => {
  given.bound('pprint', []);
  return prettyText(value, budget);
};

/** All filters by their names. */
export const FILTERS: ReadonlyMap<string, Filter> = new Map<string, Filter>([
  ...TEXT_FILTERS,
  ...LIST_FILTERS,
  ...NUMBER_FILTERS,
  ['length', length],
  ['count', length],
  ['default', defaultFilter],
  ['d', defaultFilter],
  ['attr', attr],
  ['random', random],
  ['pprint', pprint],
  ['tojson', (value, given, { budget }) => jsonText(value, given, budget)],
]);
