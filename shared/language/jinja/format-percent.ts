import { JsonFloat } from '../../base/json/exact-json.js';
import { characterCount, firstCharacters } from './characters.js';
import { FORMAT_DIGITS_LIMIT } from './format-specification.js';
import { toBigInt, toFloat, toPlace, truncated } from './numbers.js';
import { exponentDigits, fixedDigits, generalDigits } from './print-float.js';
import { pythonRepr, pythonText, Writer } from './print-python.js';
import type { TemplateBudget } from './template-budget.js';
import { Dict, isInteger, TemplateError, textOf, Tuple, typeName, Undefined, Range, type Value } from './values.js';

const DIRECTIVE = /%(?:\(([^)]*)\))?([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+)?)?[hlL]?([^])?/gu;
const HAS_PRECISION = /\.(\*|\d+)?[hlL]?[^]$/u;

interface Directive {
  flags: string;
  width: number;
  precision: number | null;
  type: string;
}

/** Python's `text % values`. Throws TemplateError if the values do not suit the text. */
export function percentFormatted(text: string, values: Value, budget: TemplateBudget): string {
  budget.read(text.length);
  const given = new FormatValues(values);
  const written = new Writer(budget);
  let end = 0;
  for (const match of text.matchAll(DIRECTIVE)) {
    written.add(text.slice(end, match.index));
    end = match.index + match[0].length;
    written.add(directiveText(match, given, budget));
  }
  written.add(text.slice(end));
  given.requireAllUsed();
  return written.whole();
}

function directiveText(match: RegExpExecArray, given: FormatValues, budget: TemplateBudget): string {
  const [whole, name, givenFlags = '', width, precision, type] = match;
  if (type === undefined) throw new TemplateError('incomplete format');
  if (type === '%') return '%';
  let flags = givenFlags;
  const named = name === undefined ? undefined : given.named(name);
  let room = width === '*' ? toPlace(given.next()) : Number(width ?? 0);
  if (room < 0) [flags, room] = [`${flags}-`, -room];
  const digits = precision === '*' ? Math.max(0, toPlace(given.next())) : Number(precision ?? 0);
  if (digits > FORMAT_DIGITS_LIMIT && type !== 's') throw new TemplateError('a format asks for too many digits');
  budget.spend(room);
  const directive = { flags, width: room, precision: HAS_PRECISION.test(whole) ? digits : null, type };
  return directed(named === undefined ? given.next() : named, directive, budget);
}

/** The values of the directives, in their order or by their names. */
class FormatValues {
  private at = 0;
  private readonly items: readonly Value[];
  private readonly isMapping: boolean;

  constructor(private readonly values: Value) {
    this.items = values instanceof Tuple ? values.items : [values];
    this.isMapping =
      values instanceof Dict || Array.isArray(values) || values instanceof Undefined || values instanceof Range;
  }

  next(): Value {
    const value = this.items[this.at];
    if (value === undefined) throw new TemplateError('not enough arguments for format string');
    this.at += 1;
    return value;
  }

  named(name: string): Value {
    if (!(this.values instanceof Dict)) throw new TemplateError('format requires a mapping');
    const value = this.values.get(name);
    if (value === undefined) throw new TemplateError(`the format names ${name}, which is not given`);
    return value;
  }

  requireAllUsed(): void {
    if (this.at < this.items.length && !this.isMapping) {
      throw new TemplateError('not all arguments converted during string formatting');
    }
  }
}

function directed(value: Value, directive: Directive, budget: TemplateBudget): string {
  const { type, precision } = directive;
  switch (type) {
    case 's':
    case 'r':
    case 'a': {
      const text = type === 's' ? pythonText(value, budget) : pythonRepr(value, budget);
      const shown = type === 'a' ? asciiText(text) : text;
      return padded('', precision === null ? shown : firstCharacters(shown, precision), directive, false);
    }
    case 'c':
      return padded('', characterOf(value), directive, false);
    case 'd':
    case 'i':
    case 'u':
      return integerText(value instanceof JsonFloat ? truncated(value.value) : value, 10, directive);
    case 'o':
      return integerText(value, 8, directive);
    case 'x':
    case 'X':
      return integerText(value, 16, directive);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      return floatText(toFloat(value), directive);
    default:
      throw new TemplateError(`unsupported format character '${type}'`);
  }
}

/** The text with escapes in place of all characters outside ASCII. */
export function asciiText(text: string): string {
  return text.replace(/[^\x00-\x7f]/gu, (character) => {
    const point = character.codePointAt(0) ?? 0;
    const hex = point.toString(16);
    if (point < 0x100) return `\\x${hex.padStart(2, '0')}`;
    return point < 0x10000 ? `\\u${hex.padStart(4, '0')}` : `\\U${hex.padStart(8, '0')}`;
  });
}

function characterOf(value: Value): string {
  if (isInteger(value)) {
    const point = toPlace(value);
    if (point < 0 || point > 0x10ffff) throw new TemplateError('%c arg not in range(0x110000)');
    return String.fromCodePoint(point);
  }
  const text = textOf(value);
  if (text === null || characterCount(text) !== 1) throw new TemplateError('%c requires int or char');
  return text;
}

function integerText(value: Value, radix: 8 | 10 | 16, directive: Directive): string {
  if (!isInteger(value))
    throw new TemplateError(`%${directive.type} format: a real number is required, not ${typeName(value)}`);
  const number = toBigInt(value);
  const digits = (number < 0n ? -number : number).toString(radix).padStart(directive.precision ?? 0, '0');
  const prefix = directive.flags.includes('#') && radix !== 10 ? (radix === 8 ? '0o' : '0x') : '';
  const shown = prefix + digits;
  return padded(signOf(number < 0n, directive), directive.type === 'X' ? shown.toUpperCase() : shown, directive, true);
}

function floatText(value: number, directive: Directive): string {
  const { type, flags } = directive;
  const sign = signOf(value < 0 || Object.is(value, -0), directive);
  const places = directive.precision ?? 6;
  const kind = type.toLowerCase();
  const digits = Number.isNaN(value)
    ? 'nan'
    : !Number.isFinite(value)
      ? 'inf'
      : kind === 'f'
        ? fixedDigits(value, places)
        : kind === 'e'
          ? exponentDigits(value, places)
          : generalDigits(value, places, flags.includes('#'));
  const shown = type === kind ? digits : digits.toUpperCase();
  return padded(sign, shown, directive, Number.isFinite(value));
}

function signOf(isNegative: boolean, { flags }: Directive): string {
  if (isNegative) return '-';
  return flags.includes('+') ? '+' : flags.includes(' ') ? ' ' : '';
}

function padded(sign: string, text: string, { flags, width }: Directive, isNumber: boolean): string {
  const room = Math.max(0, width - characterCount(text) - sign.length);
  if (flags.includes('-')) return sign + text + ' '.repeat(room);
  if (!isNumber || !flags.includes('0')) return ' '.repeat(room) + sign + text;
  const [, prefix = '', digits = ''] = /^(0[xXoO](?=[^]))?([^]*)$/.exec(text) ?? [];
  return sign + prefix + '0'.repeat(room) + digits;
}
