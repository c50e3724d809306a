import { JsonFloat } from '../../base/json/exact-json.js';
import { pythonFloat } from './print-float.js';
import type { TemplateBudget } from './template-budget.js';
import {
  Callable,
  Dict,
  DictView,
  Markup,
  Namespace,
  Properties,
  Range,
  Special,
  TemplateError,
  Tuple,
  Undefined,
  type Value,
} from './values.js';

/** Writes values as Python does, because published templates were made with Python. */

/** Most levels of nested lists and objects, so that a value that contains itself ends. */
const DEPTH_LIMIT = 600;

/** The value as str() writes it. */
export function pythonText(value: Value, budget: TemplateBudget): string {
  if (typeof value === 'string') return value;
  if (value instanceof Markup) return value.text;
  return value instanceof Undefined ? '' : pythonRepr(value, budget);
}

/** The value as repr() writes it. */
export function pythonRepr(value: Value, budget: TemplateBudget): string {
  const text = new Writer(budget);
  writeRepr(value, text, 0);
  return text.whole();
}

/** Most texts that are stored separately. Each takes more memory than its characters. */
const TEXTS_LIMIT = 4096;

/** Builds a text. Each addition is paid for before it is added. */
export class Writer {
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

export function requirePrintedDepth(depth: number): void {
  if (depth > DEPTH_LIMIT)
    throw new TemplateError(`more than ${DEPTH_LIMIT} lists and objects stand within one another`);
}

function writeRepr(value: Value, text: Writer, depth: number): void {
  requirePrintedDepth(depth);
  if (typeof value === 'string') {
    text.budget.spend(value.length);
    text.add(reprOfText(value));
  } else if (Array.isArray(value)) writeItems('[', value, ']', text, depth);
  else if (value instanceof Tuple) writeItems('(', value.items, value.items.length === 1 ? ',)' : ')', text, depth);
  else if (value instanceof Dict) writeDict(value, text, depth);
  else if (value instanceof Markup) {
    text.budget.spend(value.text.length);
    text.add(`Markup(${reprOfText(value.text)})`);
  } else if (value instanceof DictView) {
    text.add(`${value.typeName}(`);
    writeItems('[', value.list(), ']', text, depth);
    text.add(')');
  } else if (value instanceof Namespace) {
    text.add('<Namespace ');
    writeDict(value.properties, text, depth);
    text.add('>');
  } else text.add(scalarText(value));
}

function writeItems(begin: string, items: readonly Value[], end: string, text: Writer, depth: number): void {
  text.add(begin);
  for (const [index, item] of items.entries()) {
    if (index > 0) text.add(', ');
    writeRepr(item, text, depth + 1);
  }
  text.add(end);
}

function writeDict(dict: Dict, text: Writer, depth: number): void {
  text.add('{');
  let isFirst = true;
  for (const [key, value] of dict.items()) {
    if (!isFirst) text.add(', ');
    isFirst = false;
    writeRepr(key, text, depth + 1);
    text.add(': ');
    writeRepr(value, text, depth + 1);
  }
  text.add('}');
}

function scalarText(value: null | boolean | number | bigint | JsonFloat | Special): string {
  if (value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (value instanceof JsonFloat) return pythonFloat(value.value);
  if (!(value instanceof Special)) return String(value);
  if (value instanceof Range) return rangeText(value);
  if (value instanceof Properties) return value.printed();
  if (value instanceof Undefined) return 'Undefined';
  return value instanceof Callable ? value.printed : `<${value.typeName} object>`;
}

function rangeText({ start, stop, step }: Range): string {
  return `range(${start}, ${stop}${step === 1 ? '' : `, ${step}`})`;
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
