import { JsonFloat } from '../../base/json/exact-json.js';
import { characterCount, firstCharacters } from './characters.js';
import { toBigInt, toFloat } from './numbers.js';
import { exponentDigits, fixedDigits, generalDigits, pythonFloat } from './print-float.js';
import { pythonText } from './print-python.js';
import type { TemplateBudget } from './template-budget.js';
import { isInteger, TemplateError, textOf, typeName, type Value } from './values.js';

/** Most digits that a format may ask for. Python takes more, but no template needs them. */
export const FORMAT_DIGITS_LIMIT = 5000;

const SPECIFICATION = /^(?:([^])?([<>=^]))?([-+ ])?(z)?(#)?(0)?(\d+)?([,_])?(?:\.(\d+))?([a-zA-Z%])?$/u;

interface Specification {
  fill: string;
  align: string;
  sign: string;
  isAlternate: boolean;
  width: number;
  grouping: string;
  precision: number | null;
  type: string;
}

/** Python's format(value, specification). Throws TemplateError if the specification does not suit the value. */
export function formatted(value: Value, specification: string, budget: TemplateBudget): string {
  if (specification === '') return pythonText(value, budget);
  const spec = read(specification, value);
  budget.spend(spec.width + (spec.precision ?? 0));
  const text = textOf(value);
  if (text !== null) return formattedText(text, spec);
  const isFloatType = 'eEfFgG%'.includes(spec.type) && spec.type !== '';
  if (value instanceof JsonFloat || (isInteger(value) && isFloatType)) return formattedFloat(toFloat(value), spec);
  if (isInteger(value) && (typeof value !== 'boolean' || spec.type !== '')) return formattedInteger(value, spec);
  if (typeof value === 'boolean') return formattedInteger(value, spec);
  throw new TemplateError(`unsupported format string passed to ${typeName(value)}.__format__`);
}

function read(specification: string, value: Value): Specification {
  const found = SPECIFICATION.exec(specification);
  if (found === null) throw new TemplateError(`invalid format specifier '${specification}'`);
  const [, fill, align, sign, , alternate, zero, width = '0', grouping = '', precision, type = ''] = found;
  const digits = Number(precision ?? 0);
  if (digits > FORMAT_DIGITS_LIMIT) throw new TemplateError('a format asks for too many digits');
  const isText = textOf(value) !== null;
  return {
    fill: fill ?? (zero === undefined ? ' ' : '0'),
    align: align ?? (zero !== undefined && !isText ? '=' : ''),
    sign: sign ?? '',
    isAlternate: alternate !== undefined,
    width: Number(width),
    grouping,
    precision: precision === undefined ? null : digits,
    type,
  };
}

function formattedText(text: string, spec: Specification): string {
  const isWrong =
    (spec.type !== '' && spec.type !== 's') || spec.sign !== '' || spec.align === '=' || spec.grouping !== '';
  if (isWrong || spec.isAlternate) throw new TemplateError('this format does not suit a text');
  const shown = spec.precision === null ? text : firstCharacters(text, spec.precision);
  return padded(shown, spec, '<');
}

function padded(text: string, { fill, align, width }: Specification, otherwise: string): string {
  const room = Math.max(0, width - characterCount(text));
  const side = align === '' ? otherwise : align;
  const before = side === '<' ? 0 : side === '^' ? Math.floor(room / 2) : room;
  return fill.repeat(before) + text + fill.repeat(room - before);
}

const RADIXES: Readonly<Record<string, number>> = { b: 2, o: 8, x: 16, X: 16 };

function formattedInteger(value: number | bigint | boolean, spec: Specification): string {
  const { type } = spec;
  if (spec.precision !== null) throw new TemplateError('Precision not allowed in integer format specifier');
  const number = toBigInt(value);
  if (type === 'c') return padded(String.fromCodePoint(Number(number)), spec, '<');
  const radix = RADIXES[type] ?? 10;
  if (!['', 'd', 'n', ...Object.keys(RADIXES)].includes(type)) throw new TemplateError(`unknown format code '${type}'`);
  const size = (number < 0n ? -number : number).toString(radix);
  const prefix = spec.isAlternate && radix !== 10 ? `0${type}` : '';
  return signedNumber(number < 0n, prefix, type === 'X' ? size.toUpperCase() : size, '', spec, radix === 10 ? 3 : 4);
}

function formattedFloat(value: number, spec: Specification): string {
  const { type } = spec;
  const isNegative = value < 0 || Object.is(value, -0);
  if (!Number.isFinite(value)) {
    const word = Number.isNaN(value) ? 'nan' : 'inf';
    const shown = 'EFG'.includes(type) && type !== '' ? word.toUpperCase() : word;
    return signedNumber(isNegative, '', '', type === '%' ? `${shown}%` : shown, spec, 3);
  }
  const digits = floatDigits(type === '%' ? value * 100 : value, spec);
  const shown = type === 'E' || type === 'G' ? digits.toUpperCase() : digits;
  const [, whole = '', rest = ''] = /^(\d*)(.*)$/.exec(shown) ?? [];
  return signedNumber(isNegative, '', whole, type === '%' ? `${rest}%` : rest, spec, 3);
}

function floatDigits(value: number, { type, precision, isAlternate }: Specification): string {
  const places = precision ?? 6;
  switch (type.toLowerCase()) {
    case 'f':
    case '%':
      return fixedDigits(value, places);
    case 'e':
      return exponentDigits(value, places);
    case 'g':
    case 'n':
      return generalDigits(value, places, isAlternate);
    case '': {
      if (precision === null) return pythonFloat(Math.abs(value));
      const short = generalDigits(value, precision);
      const exponent = Number(exponentDigits(value, Math.max(0, precision - 1)).split('e')[1]);
      if (short.includes('e')) return short;
      if (exponent >= precision - 1) return exponentDigits(value, Math.max(0, precision - 1)).replace(/\.?0+(?=e)/, '');
      return short.includes('.') ? short : `${short}.0`;
    }
    default:
      throw new TemplateError(`unknown format code '${type}' for a float`);
  }
}

function signedNumber(
  isNegative: boolean,
  prefix: string,
  whole: string,
  rest: string,
  spec: Specification,
  groupSize: number,
): string {
  const sign = (isNegative ? '-' : spec.sign === '-' ? '' : spec.sign) + prefix;
  const room = spec.width - sign.length - rest.length;
  if (spec.align === '=' && spec.fill === '0') return sign + zeroFilled(whole, room, spec.grouping, groupSize) + rest;
  const text = grouped(whole, spec.grouping, groupSize) + rest;
  if (spec.align !== '=') return padded(sign + text, spec, '>');
  return sign + spec.fill.repeat(Math.max(0, spec.width - sign.length - text.length)) + text;
}

function zeroFilled(whole: string, room: number, separator: string, groupSize: number): string {
  if (separator === '') return whole.padStart(room, '0');
  // A separator never stands at the beginning, so that the text may be one character longer than the room.
  const groups = Math.floor(room / (groupSize + 1));
  const digits = room % (groupSize + 1) === 0 ? groups * groupSize + 1 : room - groups;
  return grouped(whole.padStart(digits, '0'), separator, groupSize);
}

function grouped(digits: string, separator: string, groupSize: number): string {
  if (separator === '') return digits;
  const first = digits.length % groupSize;
  const groups = first === 0 ? [] : [digits.slice(0, first)];
  for (let at = first; at < digits.length; at += groupSize) groups.push(digits.slice(at, at + groupSize));
  return groups.join(separator);
}
