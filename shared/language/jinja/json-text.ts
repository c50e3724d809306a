import { JsonFloat } from '../../base/json/exact-json.js';
import { isTrue, orderOf } from './compare.js';
import { isNumber, toPlace } from './numbers.js';
import { pythonFloat } from './print-float.js';
import { requirePrintedDepth, Writer } from './print-python.js';
import type { TemplateBudget } from './template-budget.js';
import { Dict, type Given, isInteger, TemplateError, textOf, Tuple, typeName, type Value } from './values.js';

/** Options of json.dumps. */
interface JsonStyle {
  /** Indentation of one level; null: the JSON is on one line. */
  indent: { text: string; times: number } | null;
  ensureAscii: boolean;
  sortKeys: boolean;
  /** Separators between items, and between a key and its value. */
  between: string;
  afterKey: string;
}

/** The filter tojson, as transformers defines it: the value as json.dumps writes it. */
export function jsonText(value: Value, given: Given, budget: TemplateBudget): string {
  const text = new Writer(budget);
  writeJson(value, styleOf(given), text, 0);
  return text.whole();
}

function styleOf(given: Given): JsonStyle {
  const [ensureAscii = false, indent = null, separators = null, sortKeys = false] = given.bound('tojson', [
    'ensure_ascii',
    'indent',
    'separators',
    'sort_keys',
  ]);
  const indented = indent === null ? null : indentOf(indent);
  const [between, afterKey] = separators === null ? [indented === null ? ', ' : ',', ': '] : separatorsOf(separators);
  return { indent: indented, ensureAscii: isTrue(ensureAscii), sortKeys: isTrue(sortKeys), between, afterKey };
}

function indentOf(indent: Value): { text: string; times: number } {
  const text = textOf(indent);
  if (text !== null) return { text, times: 1 };
  return { text: ' ', times: Math.max(0, toPlace(indent)) };
}

function separatorsOf(given: Value): [string, string] {
  const items = Array.isArray(given) ? given : given instanceof Tuple ? given.items : [];
  const [between, afterKey] = items.map(textOf);
  if (items.length === 2 && typeof between === 'string' && typeof afterKey === 'string') return [between, afterKey];
  throw new TemplateError('separators must be two texts');
}

function writeJson(value: Value, style: JsonStyle, text: Writer, depth: number): void {
  requirePrintedDepth(depth);
  const newLine = (level: number): void => {
    if (style.indent === null) return;
    const { text: one, times } = style.indent;
    const spaces = times * level;
    text.budget.spend(spaces * one.length);
    text.add(`\n${one.repeat(spaces)}`);
  };
  const writeItems = <Item>(begin: string, items: readonly Item[], end: string, write: (item: Item) => void): void => {
    text.add(begin);
    for (const [index, item] of items.entries()) {
      if (index > 0) text.add(style.between);
      newLine(depth + 1);
      write(item);
    }
    if (items.length > 0) newLine(depth);
    text.add(end);
  };
  const plain = textOf(value);
  if (plain !== null) text.add(jsonString(plain, style, text.budget));
  else if (Array.isArray(value)) writeItems('[', value, ']', (item) => writeJson(item, style, text, depth + 1));
  else if (value instanceof Tuple) writeItems('[', value.items, ']', (item) => writeJson(item, style, text, depth + 1));
  else if (value instanceof Dict) {
    writeItems('{', entriesOf(value, style, text.budget), '}', ([key, property]) => {
      text.add(jsonString(keyText(key), style, text.budget));
      text.add(style.afterKey);
      writeJson(property, style, text, depth + 1);
    });
  } else text.add(scalarJson(value));
}

function entriesOf(dict: Dict, { sortKeys }: JsonStyle, budget: TemplateBudget): [Value, Value][] {
  budget.spend(dict.size);
  const entries = [...dict.items()];
  return sortKeys ? entries.sort(([a], [b]) => orderOf(a, b, '<', budget)) : entries;
}

function keyText(key: Value): string {
  const text = textOf(key);
  if (text !== null) return text;
  if (key === null || isNumber(key)) return scalarJson(key);
  throw new TemplateError(`keys must be texts, numbers, booleans or None, not ${typeName(key)}`);
}

function jsonString(value: string, { ensureAscii }: JsonStyle, budget: TemplateBudget): string {
  budget.spend(value.length);
  const text = JSON.stringify(value);
  if (!ensureAscii) return text;
  budget.spend(text.length);
  return text.replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

function scalarJson(value: Value): string {
  if (value === null) return 'null';
  if (typeof value === 'boolean') return String(value);
  if (isInteger(value)) return String(value);
  if (value instanceof JsonFloat) {
    if (Number.isNaN(value.value)) return 'NaN';
    if (!Number.isFinite(value.value)) return value.value > 0 ? 'Infinity' : '-Infinity';
    return pythonFloat(value.value);
  }
  throw new TemplateError(`Object of type ${typeName(value)} is not JSON serializable`);
}
