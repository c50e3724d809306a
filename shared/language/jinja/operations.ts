import { areEqual, contains, orderOf } from './compare.js';
import { percentFormatted } from './format-percent.js';
import { escapedText } from './markup.js';
import type { CompareOperator, MathOperator } from './nodes.js';
import { isNumber, numberResult, toPlace } from './numbers.js';
import { sizeOf } from './sequences.js';
import { COSTS, type TemplateBudget } from './template-budget.js';
import { isInteger, Markup, TemplateError, textOf, Tuple, typeName, type Value } from './values.js';

/** Python's operators. */

/** `left operator right`. Throws TemplateError if the operator does not suit the values. */
export function mathResult(operator: MathOperator, left: Value, right: Value, budget: TemplateBudget): Value {
  if (isNumber(left) && isNumber(right)) return numberResult(operator, left, right);
  const result =
    operator === '+'
      ? joined(left, right, budget)
      : operator === '*'
        ? (repeated(left, right, budget) ?? repeated(right, left, budget))
        : operator === '%'
          ? formattedBy(left, right, budget)
          : null;
  if (result !== null) return result;
  throw new TemplateError(`unsupported operand types for ${operator}: '${typeName(left)}' and '${typeName(right)}'`);
}

/** null: the values cannot be joined. */
function joined(left: Value, right: Value, budget: TemplateBudget): Value | null {
  if (left instanceof Markup || right instanceof Markup) {
    const [first, second] = [escapedText(left, budget), escapedText(right, budget)];
    return textOf(left) === null || textOf(right) === null ? null : new Markup(first + second);
  }
  if (typeof left === 'string' && typeof right === 'string') {
    // A long text is not copied until the whole text is read.
    budget.spend(Math.min(left.length, right.length) * COSTS.character);
    return left + right;
  }
  const isList = Array.isArray(left) && Array.isArray(right);
  if (!isList && !(left instanceof Tuple && right instanceof Tuple)) return null;
  budget.spend((sizeOf(left) + sizeOf(right)) * COSTS.place);
  if (Array.isArray(left) && Array.isArray(right)) return left.concat(right);
  return left instanceof Tuple && right instanceof Tuple ? new Tuple([...left.items, ...right.items]) : null;
}

/** null: the first value cannot be repeated. */
function repeated(value: Value, times: Value, budget: TemplateBudget): Value | null {
  const text = textOf(value);
  const items = Array.isArray(value) ? value : value instanceof Tuple ? value.items : null;
  if ((text === null && items === null) || !isInteger(times)) return null;
  if (typeof times === 'bigint') throw new TemplateError('a number is too large for a repetition');
  const count = Math.max(0, toPlace(times));
  const size = sizeOf(value);
  if (size === 0) return value;
  budget.spend((size * COSTS.place + 1) * count);
  if (text !== null) return value instanceof Markup ? new Markup(text.repeat(count)) : text.repeat(count);
  const made = Array.from({ length: count }, () => items ?? []).flat();
  return Array.isArray(value) ? made : new Tuple(made);
}

function formattedBy(left: Value, right: Value, budget: TemplateBudget): Value | null {
  const text = textOf(left);
  if (text === null) return null;
  const made = percentFormatted(text, right, budget);
  return left instanceof Markup ? new Markup(made) : made;
}

/** `left operator right`. Throws TemplateError if the values have no order. */
export function isInOrder(operator: CompareOperator, left: Value, right: Value, budget: TemplateBudget): boolean {
  switch (operator) {
    case '==':
      return areEqual(left, right, budget);
    case '!=':
      return !areEqual(left, right, budget);
    case 'in':
      return contains(right, left, budget);
    case 'not in':
      return !contains(right, left, budget);
    case '<':
      return orderOf(left, right, operator, budget) < 0;
    case '<=':
      return orderOf(left, right, operator, budget) <= 0;
    case '>':
      return orderOf(left, right, operator, budget) > 0;
    case '>=':
      return orderOf(left, right, operator, budget) >= 0;
  }
}
