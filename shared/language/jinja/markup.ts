import { pythonText } from './print-python.js';
import type { TemplateBudget } from './template-budget.js';
import { Markup, type Value } from './values.js';

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  "'": '&#39;',
  '"': '&#34;',
};
/** Characters of the longest entity. */
const GROWTH = 5;

/** The value's text for HTML; markup stays as it is. */
export function escapedText(value: Value, budget: TemplateBudget): string {
  if (value instanceof Markup) return value.text;
  return escapedAlways(pythonText(value, budget), budget);
}

export function escapedAlways(text: string, budget: TemplateBudget): string {
  budget.spend(text.length * GROWTH);
  return text.replace(/[&<>'"]/g, (character) => ENTITIES[character] ?? character);
}

const CHARACTERS: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
  nbsp: '\u00a0',
  copy: '\u00a9',
  reg: '\u00ae',
  hellip: '\u2026',
  mdash: '\u2014',
  ndash: '\u2013',
};

/** The text with characters in place of the usual entities. */
export function unescaped(text: string): string {
  return text.replace(
    /&(?:#(\d+)|#[xX]([\da-fA-F]+)|([a-zA-Z]+));/g,
    (whole, decimal?: string, hex?: string, name?: string) => {
      if (name !== undefined) return CHARACTERS[name] ?? whole;
      const point = decimal === undefined ? parseInt(hex ?? '', 16) : Number(decimal);
      return point > 0 && point <= 0x10ffff ? String.fromCodePoint(point) : '\ufffd';
    },
  );
}
