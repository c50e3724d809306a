import { exactInteger } from '../../base/json/exact-json.js';
import {
  FloatValue,
  IntegerValue,
  type JinjaNode,
  type JinjaToken,
  type JinjaValue,
  TextValue,
} from './template-runtime.js';

/** Computes with integers of templates that a JavaScript number cannot hold, as Python does. */

/** Largest integer in computations. It is as large as Python's largest integer that can be written in digits (some 4300 of them). */
const INTEGER_LIMIT = 1n << 14_000n;

const LARGE_LITERAL = /^[+-]?\d{16,}$/;

/**
 * Turns the token of a large integer into the token of a name that consists of its digits. The package's parser would make a number of it, which
 * would lose digits. Throws SyntaxError if there are too many digits for Python.
 */
export function withLargeLiterals(token: JinjaToken): JinjaToken {
  if (token.type !== 'NumericLiteral' || !LARGE_LITERAL.test(token.value)) return token;
  return typeof integerOf(token.value) === 'bigint' ? { type: 'Identifier', value: token.value } : token;
}

/** The value of a name that withLargeLiterals made; null: the name is one of the template's own. */
export function largeLiteral(node: JinjaNode): JinjaValue | null {
  const name = String(node['value']);
  return LARGE_LITERAL.test(name) ? new IntegerValue(integerOf(name)) : null;
}

/** The value as an index or a count. A large integer becomes the largest safe one, which is larger than any list or text. */
export function asPlace(value: JinjaValue): JinjaValue {
  if (typeof value.value !== 'bigint') return value;
  return new IntegerValue(value.value < 0n ? Number.MIN_SAFE_INTEGER : Number.MAX_SAFE_INTEGER);
}

/** `left operator right` if large integers are involved; null: none are. */
export function largeIntegerResult(operator: string, left: JinjaValue, right: JinjaValue): JinjaValue | null {
  if (!(left instanceof IntegerValue && right instanceof IntegerValue)) return floatResult(operator, left, right);
  const [a, b] = [left.value, right.value];
  if (typeof a === 'number' && typeof b === 'number' && !isLost(operator, a, b)) return null;
  if ([a, b].some((value) => typeof value === 'number' && !Number.isInteger(value))) return null;
  const result = integerResult(operator, BigInt(a), BigInt(b));
  if (result === null) return null;
  if (result > INTEGER_LIMIT || result < -INTEGER_LIMIT) throw new Error('a number has more than 4300 digits');
  return new IntegerValue(narrowed(result));
}

/** True if a JavaScript number would lose digits of the result. */
function isLost(operator: string, a: number, b: number): boolean {
  const result = operator === '*' ? a * b : operator === '+' ? a + b : operator === '-' ? a - b : 0;
  return Number.isFinite(result) && !Number.isSafeInteger(result);
}

/** JavaScript's own comparisons know both kinds of numbers. */
function integerResult(operator: string, a: bigint, b: bigint): bigint | null {
  switch (operator) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    case '//':
    case '%': {
      if (b === 0n) throw new Error('integer division or modulo by zero');
      const rest = a % b;
      const isBelow = rest !== 0n && rest < 0n !== b < 0n;
      if (operator === '%') return isBelow ? rest + b : rest;
      return isBelow ? a / b - 1n : a / b;
    }
    default:
      return null;
  }
}

/** The result of a large integer and a float, or of an operation whose result is a float. */
function floatResult(operator: string, left: JinjaValue, right: JinjaValue): JinjaValue | null {
  if (!isLarge(left) && !isLarge(right)) return null;
  const [a, b] = [numberOf(left), numberOf(right)];
  if (a === null || b === null) return null;
  switch (operator) {
    case '+':
      return new FloatValue(a + b);
    case '-':
      return new FloatValue(a - b);
    case '*':
      return new FloatValue(a * b);
    case '//':
      return new FloatValue(Math.floor(a / b));
    case '%':
      return new FloatValue(a - b * Math.floor(a / b));
    default:
      return null;
  }
}

/** The operand with a number in place of a large integer, for operations whose result is always a float. */
export function asNumber(value: JinjaValue): JinjaValue {
  return isLarge(value) ? new FloatValue(Number(value.value)) : value;
}

export function isLarge(value: JinjaValue): boolean {
  return typeof value.value === 'bigint';
}

/** `-value`; null: the value is not a large integer. */
export function negatedLarge(value: JinjaValue): JinjaValue | null {
  return typeof value.value === 'bigint' ? new IntegerValue(narrowed(-value.value)) : null;
}

/** The result of a filter of numbers for a large integer, or for a text of its digits; null: it is another filter or value. */
export function largeIntegerFilter(name: string, value: JinjaValue): JinjaValue | null {
  if (name === 'int' && value instanceof TextValue && /^\s*[+-]?\d{16,5000}\s*$/.test(value.value)) {
    return new IntegerValue(integerOf(value.value.trim()));
  }
  if (typeof value.value !== 'bigint') return null;
  switch (name) {
    case 'abs':
      return new IntegerValue(narrowed(value.value < 0n ? -value.value : value.value));
    case 'int':
      return value;
    case 'float':
      return new FloatValue(Number(value.value));
    default:
      return null;
  }
}

/** The text consists of digits, with or without a sign. */
function integerOf(digits: string): number | bigint {
  return exactInteger(digits.replace(/^\+/, ''));
}

function numberOf(value: JinjaValue): number | null {
  return value instanceof IntegerValue || value instanceof FloatValue ? Number(value.value) : null;
}

function narrowed(value: bigint): number | bigint {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}
