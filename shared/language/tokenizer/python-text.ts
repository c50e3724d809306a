import type { TemplateBudget } from './template-budget.js';
import {
  BooleanValue,
  FloatValue,
  IntegerValue,
  type JinjaValue,
  ListValue,
  NullValue,
  TextValue,
  UndefinedValue,
} from './template-runtime.js';

/** Writes values of a template as Python does, because published templates were made with Python. */

/** Options of json.dumps. */
export interface JsonStyle {
  /** null: the JSON is on one line. */
  indent: number | null;
  ensureAscii: boolean;
  sortKeys: boolean;
  /** Separators between items, and between a key and its value; null: the default ones. */
  separators: readonly [string, string] | null;
}
export const PLAIN_JSON: JsonStyle = { indent: null, ensureAscii: false, sortKeys: false, separators: null };

/** Most levels of nested lists and objects, so that a value that contains itself ends. */
const DEPTH_LIMIT = 600;
/** Python writes a float with an exponent if its decimal exponent is at least EXPONENT_FROM or below EXPONENT_BELOW. */
const EXPONENT_FROM = 16;
const EXPONENT_BELOW = -4;

/** The value as str() writes it. */
export function pythonText(value: JinjaValue, budget: TemplateBudget): string {
  if (value instanceof TextValue) return value.value;
  if (value instanceof UndefinedValue) return '';
  const text = new Writer(budget);
  writeRepr(value, text, 0);
  return text.whole();
}

/** The value as json.dumps writes it. */
export function jsonText(value: JinjaValue, style: JsonStyle, budget: TemplateBudget): string {
  const text = new Writer(budget);
  writeJson(value, style, text, 0);
  return text.whole();
}

/** A float as Python writes it: with the same digits as JavaScript, but other exponents. */
export function pythonFloat(value: number): string {
  if (Number.isNaN(value)) return 'nan';
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  if (value === 0) return Object.is(value, -0) ? '-0.0' : '0.0';
  const [mantissa = '', exponentText = ''] = value.toExponential().split('e');
  const exponent = Number(exponentText);
  if (exponent < EXPONENT_BELOW || exponent >= EXPONENT_FROM) {
    return `${mantissa}e${exponent < 0 ? '-' : '+'}${String(Math.abs(exponent)).padStart(2, '0')}`;
  }
  const sign = value < 0 ? '-' : '';
  const digits = mantissa.replace(/[-.]/g, '');
  if (exponent < 0) return `${sign}0.${'0'.repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, '0');
  return `${sign}${whole}.${digits.slice(exponent + 1) || '0'}`;
}

/** Most texts that are stored separately. Each takes more memory than its characters. */
const TEXTS_LIMIT = 4096;

/** Builds a text. Each addition is paid for before it is added. */
class Writer {
  private text = '';
  private added: string[] = [];

  constructor(readonly budget: TemplateBudget) {}

  add(text: string): void {
    this.budget.spend(text.length + 1);
    this.added.push(text);
    if (this.added.length >= TEXTS_LIMIT) this.gather();
  }

  whole(): string {
    this.gather();
    return this.text;
  }

  private gather(): void {
    this.text += this.added.join('');
    this.added = [];
  }
}

function requireDepth(depth: number): void {
  if (depth > DEPTH_LIMIT) throw new Error(`more than ${DEPTH_LIMIT} lists and objects stand within one another`);
}

function writeRepr(value: JinjaValue, text: Writer, depth: number): void {
  requireDepth(depth);
  if (value instanceof TextValue) {
    text.budget.spend(value.value.length);
    text.add(reprOfText(value.value));
  } else if (value instanceof ListValue) {
    const isTuple = value.type === 'TupleValue';
    text.add(isTuple ? '(' : '[');
    for (const [index, item] of value.value.entries()) {
      if (index > 0) text.add(', ');
      writeRepr(item, text, depth + 1);
    }
    text.add(isTuple ? (value.value.length === 1 ? ',)' : ')') : ']');
  } else if (value.value instanceof Map) {
    text.add('{');
    let first = true;
    for (const [key, property] of value.value as Map<string, JinjaValue>) {
      if (!first) text.add(', ');
      first = false;
      text.add(`${reprOfText(key)}: `);
      writeRepr(property, text, depth + 1);
    }
    text.add('}');
  } else text.add(scalarText(value));
}

function scalarText(value: JinjaValue): string {
  if (value instanceof NullValue) return 'None';
  if (value instanceof BooleanValue) return value.value ? 'True' : 'False';
  if (value instanceof FloatValue) return pythonFloat(value.value);
  if (value instanceof IntegerValue) return integerText(value.value);
  return value instanceof UndefinedValue ? 'Undefined' : `<${value.type}>`;
}

/** Python integers have no negative zero, and are written without exponents. */
function integerText(value: number | bigint): string {
  if (typeof value === 'number' && !Number.isSafeInteger(value)) {
    return Number.isInteger(value) ? BigInt(value).toString() : pythonFloat(value);
  }
  return String(value);
}

const ESCAPES: ReadonlyMap<string, string> = new Map([
  ['\n', '\\n'],
  ['\r', '\\r'],
  ['\t', '\\t'],
  ['\\', '\\\\'],
]);

function reprOfText(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const inside = text.replace(/[\p{C}\p{Zl}\p{Zp}\\'"]|(?! )\p{Zs}/gu, (character) => {
    if (character === "'" || character === '"') return character === quote ? `\\${character}` : character;
    const escape = ESCAPES.get(character);
    if (escape !== undefined) return escape;
    const point = character.codePointAt(0) ?? 0;
    const hex = point.toString(16);
    if (point < 0x100) return `\\x${hex.padStart(2, '0')}`;
    return point < 0x10000 ? `\\u${hex.padStart(4, '0')}` : `\\U${hex.padStart(8, '0')}`;
  });
  return quote + inside + quote;
}

function writeJson(value: JinjaValue, style: JsonStyle, text: Writer, depth: number): void {
  requireDepth(depth);
  const [between, afterKey] = style.separators ?? [style.indent === null ? ', ' : ',', ': '];
  if (value instanceof ListValue) {
    writeItems('[', value.value, ']', (item) => writeJson(item, style, text, depth + 1));
  } else if (value.value instanceof Map) {
    const properties = [...(value.value as Map<string, JinjaValue>)];
    text.budget.spend(properties.length);
    if (style.sortKeys) properties.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    writeItems('{', properties, '}', ([key, property]) => {
      text.add(jsonString(key, style, text.budget));
      text.add(afterKey);
      writeJson(property, style, text, depth + 1);
    });
  } else if (value instanceof TextValue) text.add(jsonString(value.value, style, text.budget));
  else text.add(jsonScalar(value));

  function writeItems<Item>(begin: string, items: readonly Item[], end: string, write: (item: Item) => void): void {
    text.add(begin);
    for (const [index, item] of items.entries()) {
      if (index > 0) text.add(between);
      newLine(depth + 1);
      write(item);
    }
    if (items.length > 0) newLine(depth);
    text.add(end);
  }

  function newLine(level: number): void {
    if (style.indent === null) return;
    const spaces = Math.max(0, style.indent) * level;
    text.budget.spend(spaces);
    text.add(`\n${' '.repeat(spaces)}`);
  }
}

function jsonString(value: string, { ensureAscii }: JsonStyle, budget: TemplateBudget): string {
  budget.spend(value.length);
  const text = JSON.stringify(value);
  if (!ensureAscii) return text;
  budget.spend(text.length);
  return text.replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

function jsonScalar(value: JinjaValue): string {
  if (value instanceof NullValue || value instanceof UndefinedValue) return 'null';
  if (value instanceof BooleanValue) return String(value.value);
  if (value instanceof IntegerValue) return integerText(value.value);
  if (value instanceof FloatValue) {
    if (Number.isNaN(value.value)) return 'NaN';
    if (!Number.isFinite(value.value)) return value.value > 0 ? 'Infinity' : '-Infinity';
    return pythonFloat(value.value);
  }
  throw new Error(`a ${value.type} has no JSON`);
}
