import { JsonFloat } from '../../base/json/exact-json.js';
import { isAllCase } from './characters.js';
import { areEqual, areSame, contains } from './compare.js';
import type { TemplateContext } from './context.js';
import type { CompareOperator } from './nodes.js';
import { isNumber } from './numbers.js';
import { isInOrder, mathResult } from './operations.js';
import { pythonText } from './print-python.js';
import { isIterable } from './sequences.js';
import {
  Callable,
  Dict,
  type Given,
  isInteger,
  Markup,
  Properties,
  Range,
  TemplateError,
  textOf,
  Tuple,
  Undefined,
  type Value,
} from './values.js';

/** Asks a question about a value. Throws TemplateError if the value or the arguments do not suit it. */
export type Test = (value: Value, given: Given, context: TemplateContext) => boolean;

function plain(name: string, isPassed: (value: Value, context: TemplateContext) => boolean): [string, Test] {
  return [
    name,
    (value, given, context) => {
      given.unnamed(name, 0, 0);
      return isPassed(value, context);
    },
  ];
}

function withOther(
  names: readonly string[],
  isPassed: (value: Value, other: Value, context: TemplateContext) => boolean,
): [string, Test][] {
  return names.map((name) => [
    name,
    (value, given, context) => {
      const [other = null] = given.unnamed(name, 1, 1);
      return isPassed(value, other, context);
    },
  ]);
}

function comparing(operator: CompareOperator, ...names: readonly string[]): [string, Test][] {
  return withOther([operator, ...names], (value, other, { budget }) => isInOrder(operator, value, other, budget));
}

/** The rest of a division equals a number. */
function hasRest(value: Value, divisor: Value, rest: number, { budget }: TemplateContext): boolean {
  return areEqual(mathResult('%', value, divisor, budget), rest, budget);
}

function isSequence(value: Value): boolean {
  const isList = Array.isArray(value) || value instanceof Tuple || value instanceof Range;
  return isList || textOf(value) !== null || value instanceof Dict || value instanceof Undefined;
}

function isCase(kind: 'lower' | 'upper'): [string, Test] {
  return plain(kind, (value, { budget }) => {
    const text = pythonText(value, budget);
    budget.spend(text.length * 2);
    return isAllCase(text, kind);
  });
}

/** A name, if the value can be one. */
function nameOf(value: Value): string {
  if (Array.isArray(value) || value instanceof Dict) throw new TemplateError('a list or a dictionary is no name');
  return textOf(value) ?? '';
}

/** All tests by their names. */
export const TESTS: ReadonlyMap<string, Test> = new Map<string, Test>([
  plain('defined', (value) => !(value instanceof Undefined)),
  plain('undefined', (value) => value instanceof Undefined),
  plain('none', (value) => value === null),
  plain('boolean', (value) => typeof value === 'boolean'),
  plain('true', (value) => value === true),
  plain('false', (value) => value === false),
  plain('integer', (value) => isInteger(value) && typeof value !== 'boolean'),
  plain('float', (value) => value instanceof JsonFloat),
  plain('number', isNumber),
  plain('string', (value) => textOf(value) !== null),
  plain('mapping', (value) => value instanceof Dict),
  plain('sequence', isSequence),
  plain('iterable', isIterable),
  plain(
    'callable',
    (value) =>
      value instanceof Callable ||
      value instanceof Undefined ||
      (value instanceof Properties && value.call !== undefined),
  ),
  plain('escaped', (value) => value instanceof Markup),
  plain('odd', (value, context) => hasRest(value, 2, 1, context)),
  plain('even', (value, context) => hasRest(value, 2, 0, context)),
  isCase('lower'),
  isCase('upper'),
  plain('filter', (value, context) => context.hasFilter(nameOf(value))),
  plain('test', (value, context) => context.hasTest(nameOf(value))),
  ...withOther(['divisibleby'], (value, other, context) => hasRest(value, other, 0, context)),
  ...withOther(['sameas'], areSame),
  ...withOther(['in'], (value, other, { budget }) => contains(other, value, budget)),
  ...comparing('==', 'eq', 'equalto'),
  ...comparing('!=', 'ne'),
  ...comparing('>', 'gt', 'greaterthan'),
  ...comparing('>=', 'ge'),
  ...comparing('<', 'lt', 'lessthan'),
  ...comparing('<=', 'le'),
]);
