import { power, timesPowerOfTwo } from '../../base/arithmetic/elementary.js';
import { JsonFloat } from '../../base/json/exact-json.js';
import type { MathOperator } from './nodes.js';
import { isInteger, TemplateError, textOf, typeName, type Value } from './values.js';

/** Arithmetic of Python: integers of any size, floats, and True and False as 1 and 0. */

/** Bits of the largest integer in computations: as many as Python's largest integer that can be written in digits (some 4300 of them). */
const INTEGER_BITS = 14_000;
/** Largest exponent of a float whose power is computed without error before it is rounded. */
const EXACT_POWER_LIMIT = 200;
const INTEGER_LIMIT = 1n << BigInt(INTEGER_BITS);

/** Makes an integer that is as small as possible. Throws TemplateError if it is too large to be written. */
export function integer(value: bigint): number | bigint {
  if (value > INTEGER_LIMIT || value < -INTEGER_LIMIT) throw new TemplateError('a number has more than 4300 digits');
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

export function float(value: number): JsonFloat {
  return new JsonFloat(value);
}

export function isNumber(value: Value | undefined): value is number | bigint | boolean | JsonFloat {
  return isInteger(value) || value instanceof JsonFloat;
}

export function toBigInt(value: number | bigint | boolean): bigint {
  return BigInt(value);
}

/** The value as a float. Throws TemplateError if it is too large for one, or no number. */
export function toFloat(value: Value): number {
  if (value instanceof JsonFloat) return value.value;
  if (!isInteger(value)) throw new TemplateError(`a number is needed, not ${typeName(value)}`);
  const number = Number(value);
  if (!Number.isFinite(number)) throw new TemplateError('an integer is too large for a float');
  return number;
}

/** An integer as a count or an index; a very large one becomes the largest or smallest safe one. Throws TemplateError for other values. */
export function toPlace(value: Value): number {
  if (!isInteger(value)) throw new TemplateError(`an integer is needed, not ${typeName(value)}`);
  if (typeof value !== 'bigint') return Number(value);
  return value < 0n ? Number.MIN_SAFE_INTEGER : Number.MAX_SAFE_INTEGER;
}

/** `left operator right` for two numbers. */
export function numberResult(operator: MathOperator, left: Value, right: Value): Value {
  if (isInteger(left) && isInteger(right)) return integerResult(operator, left, right);
  const [a, b] = [toFloat(left), toFloat(right)];
  switch (operator) {
    case '+':
      return float(a + b);
    case '-':
      return float(a - b);
    case '*':
      return float(a * b);
    case '/':
      requireDivisor(b);
      return float(a / b);
    case '//':
      return float(floorDivided(a, b)[0]);
    case '%':
      return float(floorDivided(a, b)[1]);
    case '**':
      return float(floatPower(a, b));
  }
}

function integerResult(
  operator: MathOperator,
  left: number | bigint | boolean,
  right: number | bigint | boolean,
): Value {
  if (operator === '/') {
    requireDivisor(Number(right));
    return float(quotient(toBigInt(left), toBigInt(right)));
  }
  if (operator === '**' && Number(right) < 0) return float(floatPower(toFloat(left), toFloat(right)));
  if (typeof left !== 'bigint' && typeof right !== 'bigint') {
    const small = smallResult(operator, Number(left), Number(right));
    if (small !== null && Number.isSafeInteger(small)) return small === 0 ? 0 : small;
  }
  const [a, b] = [toBigInt(left), toBigInt(right)];
  switch (operator) {
    case '+':
      return integer(a + b);
    case '-':
      return integer(a - b);
    case '*':
      return integer(a * b);
    case '//':
    case '%': {
      requireDivisor(b === 0n ? 0 : 1);
      const rest = a % b;
      const isBelow = rest !== 0n && rest < 0n !== b < 0n;
      if (operator === '%') return integer(isBelow ? rest + b : rest);
      return integer(isBelow ? a / b - 1n : a / b);
    }
    case '**':
      return integer(integerPower(a, b));
  }
}

/** null: the operation has no shorter way. */
function smallResult(operator: MathOperator, a: number, b: number): number | null {
  if (operator === '+') return a + b;
  if (operator === '-') return a - b;
  return operator === '*' ? a * b : null;
}

/** The float that is nearest to a / b. */
function quotient(a: bigint, b: bigint): number {
  const [x, y] = [Number(a), Number(b)];
  if (Number.isSafeInteger(x) && Number.isSafeInteger(y)) return x / y;
  const isNegative = a < 0n !== b < 0n;
  const [top, bottom] = [a < 0n ? -a : a, b < 0n ? -b : b];
  // 66 bits of the quotient, the last of which stands for all that is cut off, are rounded once.
  const shift = BigInt(66 - (bitsOf(top) - bitsOf(bottom)));
  const scaled = shift > 0n ? top << shift : top;
  const divisor = shift > 0n ? bottom : bottom << -shift;
  const bits = scaled / divisor;
  const kept = Number(scaled % divisor === 0n ? bits : bits | 1n);
  const result = timesPowerOfTwo(kept, -Number(shift));
  return isNegative ? -result : result;
}

function bitsOf(value: bigint): number {
  return value.toString(2).length;
}

function integerPower(base: bigint, exponent: bigint): bigint {
  const bits = bitsOf(base < 0n ? -base : base);
  if (bits > 1 && BigInt(bits - 1) * exponent > BigInt(INTEGER_BITS)) {
    throw new TemplateError('a number has more than 4300 digits');
  }
  if (bits === 1) return base === -1n && exponent % 2n === 0n ? 1n : exponent === 0n ? 1n : base;
  let result = 1n;
  for (let left = exponent; left > 0n; left -= 1n) result *= base;
  return result;
}

function floatPower(base: number, exponent: number): number {
  if (base === 0 && exponent < 0) throw new TemplateError('0.0 cannot be raised to a negative power');
  if (exponent === 0 || base === 1) return 1;
  if (exponent === 1) return base;
  if (exponent === -1) return 1 / base;
  if (exponent === 2) return base * base;
  if (exponent === 0.5 && base >= 0) return Math.sqrt(base);
  if (base < 0 && !Number.isInteger(exponent)) throw new TemplateError('a negative number has no such power');
  const size = Math.abs(base);
  const isLimit = size === 0 || !Number.isFinite(size) || !Number.isFinite(exponent);
  const result = isLimit ? limitPower(size, exponent) : (exactPower(size, exponent) ?? power(size, exponent));
  if (!Number.isFinite(result) && Number.isFinite(size) && Number.isFinite(exponent)) {
    throw new TemplateError('the result of a power is too large');
  }
  return base < 0 && exponent % 2 !== 0 ? -result : result;
}

/** A whole power, rounded once; null: the exponent is no integer, or too large. */
function exactPower(size: number, exponent: number): number | null {
  if (!Number.isInteger(exponent) || Math.abs(exponent) > EXACT_POWER_LIMIT) return null;
  let mantissa = size;
  let twos = 0;
  while (!Number.isSafeInteger(mantissa)) {
    const isLarge = mantissa >= Number.MAX_SAFE_INTEGER;
    mantissa = isLarge ? mantissa / 2 : mantissa * 2;
    twos += isLarge ? 1 : -1;
  }
  const count = BigInt(Math.abs(exponent));
  const [whole, shift] = [integerPower(BigInt(mantissa), count), BigInt(Math.abs(twos)) * count];
  const isShiftedUp = twos > 0;
  const [top, bottom] = isShiftedUp ? [whole << shift, 1n] : [whole, 1n << shift];
  return exponent > 0 ? quotient(top, bottom) : quotient(bottom, top);
}

/** A power of zero or infinity, or with an infinite exponent. */
function limitPower(size: number, exponent: number): number {
  if (Number.isNaN(size) || Number.isNaN(exponent)) return NaN;
  if (size === 0) return 0;
  if (!Number.isFinite(size)) return exponent > 0 ? Infinity : 0;
  return size > 1 === exponent > 0 ? Infinity : size === 1 ? 1 : 0;
}

/** Quotient and rest of a division that rounds down. */
function floorDivided(a: number, b: number): [quotient: number, rest: number] {
  requireDivisor(b);
  let rest = a % b;
  let divided = (a - rest) / b;
  if (rest !== 0) {
    if (b < 0 !== rest < 0) {
      rest += b;
      divided -= 1;
    }
  } else rest = b < 0 ? -0 : 0;
  if (divided === 0) return [a < 0 === b < 0 ? 0 : -0, rest];
  const floor = Math.floor(divided);
  return [divided - floor > 0.5 ? floor + 1 : floor, rest];
}

function requireDivisor(divisor: number): void {
  if (divisor === 0) throw new TemplateError('a division by zero');
}

const INTEGER_TEXT = /^([+-]?)(?:0[xX]_?[\da-fA-F]+(?:_[\da-fA-F]+)*|[\da-zA-Z]+(?:_[\da-zA-Z]+)*)$/;
const PREFIXES: Readonly<Record<string, number>> = { '0x': 16, '0o': 8, '0b': 2 };
/** Most digits that Python reads as an integer. */
const DIGITS_LIMIT = 4300;

/** Python's int(text, base); null: it is no such number. */
export function integerOfText(text: string, base: number): number | bigint | null {
  const trimmed = asciiDigits(text);
  const sign = /^[+-]/.exec(trimmed)?.[0] ?? '';
  let digits = trimmed.slice(sign.length).toLowerCase();
  const prefixed = PREFIXES[digits.slice(0, 2)];
  let radix = base;
  if (prefixed !== undefined && (base === 0 || base === prefixed)) {
    radix = prefixed;
    digits = digits.slice(2).replace(/^_/, '');
  } else if (base === 0) {
    if (/^0[_\d]*[1-9]/.test(digits)) return null;
    radix = 10;
  }
  if (!INTEGER_TEXT.test(digits) || /^[+-]/.test(digits) || radix < 2 || radix > 36) return null;
  const plain = digits.replaceAll('_', '');
  if (plain.length > DIGITS_LIMIT) return null;
  const value = radix === 10 ? (/^\d+$/.test(plain) ? BigInt(plain) : null) : inRadix(plain, radix);
  if (value === null) return null;
  return integer(sign === '-' ? -value : value);
}

function inRadix(digits: string, radix: number): bigint | null {
  let value = 0n;
  for (const digit of digits) {
    const number = parseInt(digit, 36);
    if (!(number < radix)) return null;
    value = value * BigInt(radix) + BigInt(number);
  }
  return value;
}

const FLOAT_TEXT = /^[+-]?(?:\d+(?:_\d+)*\.?(?:\d+(?:_\d+)*)?|\.\d+(?:_\d+)*)(?:[eE][+-]?\d+(?:_\d+)*)?$/;

/** Python's float(text); null: it is no such number. */
export function floatOfText(text: string): number | null {
  const trimmed = asciiDigits(text);
  if (FLOAT_TEXT.test(trimmed)) return Number(trimmed.replaceAll('_', ''));
  const word = /^([+-]?)(inf|infinity|nan)$/i.exec(trimmed);
  if (word === null) return null;
  if (word[2]?.toLowerCase() === 'nan') return NaN;
  return word[1] === '-' ? -Infinity : Infinity;
}

/** The text without space around it, and with digits of other scripts as ASCII digits. */
function asciiDigits(text: string): string {
  const trimmed = text.replace(/^[\s\x1c-\x1f\x85]+|[\s\x1c-\x1f\x85]+$/g, '');
  return trimmed.replace(/(?![0-9])\p{Nd}/gu, (digit) => String(digitOf(digit)));
}

/** Digits of a script stand in a row of ten. */
function digitOf(digit: string): number {
  const point = digit.codePointAt(0) ?? 0;
  let first = point;
  while (point - first < 9 && /\p{Nd}/u.test(String.fromCodePoint(first - 1))) first -= 1;
  return point - first;
}

/** Python's int() of a number. Throws TemplateError if it is not finite. */
export function truncated(value: number): number | bigint {
  if (!Number.isFinite(value)) throw new TemplateError('a float that is not finite has no integer');
  const whole = Math.trunc(value);
  return Number.isSafeInteger(whole) ? (whole === 0 ? 0 : whole) : BigInt(whole);
}

export function negated(value: Value): Value {
  if (value instanceof JsonFloat) return float(-value.value);
  if (!isInteger(value)) throw new TemplateError(`${typeName(value)} has no sign`);
  return integer(-toBigInt(value));
}

/** A text that must be one. Throws TemplateError for other values. */
export function requireText(value: Value | undefined, what: string): string {
  const text = textOf(value);
  if (text === null)
    throw new TemplateError(`${what} must be a text, not ${value === undefined ? 'missing' : typeName(value)}`);
  return text;
}
