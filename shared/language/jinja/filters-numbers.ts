import { JsonFloat } from '../../base/json/exact-json.js';
import { isTrue } from './compare.js';
import type { Filter } from './context.js';
import {
  float,
  floatOfText,
  integer,
  integerOfText,
  isNumber,
  negated,
  numberResult,
  toBigInt,
  toFloat,
  toPlace,
  truncated,
} from './numbers.js';
import { fixedDigits, roundedFloat } from './print-float.js';
import { isInteger, TemplateError, textOf, typeName, Undefined, type Value } from './values.js';

/** Jinja's filters of numbers. */

const int: Filter = (value, given, { budget }) => {
  const [otherwise = 0, base = 10] = given.bound('int', ['default', 'base']);
  if (value instanceof Undefined) throw new TemplateError(value.what);
  if (isInteger(value)) return typeof value === 'boolean' ? Number(value) : value;
  if (value instanceof JsonFloat) return Number.isNaN(value.value) ? otherwise : truncated(value.value);
  const text = textOf(value);
  if (text === null) return otherwise;
  budget.read(text.length);
  const whole = integerOfText(text, toPlace(base));
  if (whole !== null) return whole;
  const number = floatOfText(text);
  return number === null || !Number.isFinite(number) ? otherwise : truncated(number);
};

const toFloatFilter: Filter = (value, given, { budget }) => {
  const [otherwise = float(0)] = given.bound('float', ['default']);
  if (value instanceof Undefined) throw new TemplateError(value.what);
  if (isNumber(value)) return float(toFloat(value));
  const text = textOf(value);
  if (text === null) return otherwise;
  budget.read(text.length);
  const number = floatOfText(text);
  return number === null ? otherwise : float(number);
};

const abs: Filter = (value, given) => {
  given.bound('abs', []);
  if (value instanceof JsonFloat) return float(Math.abs(value.value));
  if (!isInteger(value)) throw new TemplateError(`bad operand type for abs(): '${typeName(value)}'`);
  return Number(value) < 0 ? negated(value) : integer(toBigInt(value));
};

const round: Filter = (value, given) => {
  const [precision = 0, method = 'common'] = given.bound('round', ['precision', 'method']);
  if (method !== 'common' && method !== 'ceil' && method !== 'floor') {
    throw new TemplateError('method must be common, ceil or floor');
  }
  if (!isNumber(value)) throw new TemplateError(`type ${typeName(value)} doesn't define __round__ method`);
  if (method === 'common') return rounded(value, toPlace(precision));
  const scale = numberResult('**', 10, precision);
  const scaled = numberResult('*', value, scale);
  const whole =
    scaled instanceof JsonFloat
      ? truncated(method === 'ceil' ? Math.ceil(scaled.value) : Math.floor(scaled.value))
      : scaled;
  return numberResult('/', whole, scale);
};

/** Most digits before the point that a rounding may take away. */
const ROUNDED_DIGITS_LIMIT = 5000;

function rounded(value: number | bigint | boolean | JsonFloat, places: number): Value {
  if (value instanceof JsonFloat) return float(roundedFloat(value.value, places));
  if (places >= 0) return integer(toBigInt(value));
  if (places < -ROUNDED_DIGITS_LIMIT) return 0;
  const unit = BigInt(`1${'0'.repeat(-places)}`);
  const number = toBigInt(value);
  const rest = ((number % unit) + unit) % unit;
  const below = number - rest;
  const isUp = rest * 2n > unit || (rest * 2n === unit && (below / unit) % 2n !== 0n);
  return integer(isUp ? below + unit : below);
}

const UNITS = ['k', 'M', 'G', 'T', 'P', 'E', 'Z', 'Y'];

const filesizeformat: Filter = (value, given) => {
  const [binary = false] = given.bound('filesizeformat', ['binary']);
  const text = textOf(value);
  const bytes = text === null ? toFloat(value) : floatOfText(text);
  if (bytes === null) throw new TemplateError('filesizeformat needs a number');
  const base = isTrue(binary) ? 1024 : 1000;
  if (bytes === 1) return '1 Byte';
  if (bytes < base) return `${String(truncated(bytes))} Bytes`;
  let [unit, at] = [base * base, 0];
  for (; at < UNITS.length - 1 && bytes >= unit; at += 1) unit *= base;
  const name = UNITS[at] ?? '';
  return `${fixedDigits((base * bytes) / unit, 1)} ${isTrue(binary) ? `${name.toUpperCase()}iB` : `${name}B`}`;
};

export const NUMBER_FILTERS: readonly (readonly [name: string, filter: Filter])[] = [
  ['int', int],
  ['float', toFloatFilter],
  ['abs', abs],
  ['round', round],
  ['filesizeformat', filesizeformat],
];
