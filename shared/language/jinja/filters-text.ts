import { capitalized, characterCount, firstCharacters, linesOf, SPACE_RUNS, stripped } from './characters.js';
import { isTrue } from './compare.js';
import type { Filter } from './context.js';
import { percentFormatted } from './format-percent.js';
import { SPACES } from './lexer.js';
import { escapedAlways, escapedText, unescaped } from './markup.js';
import { requireText, toPlace } from './numbers.js';
import { pythonText } from './print-python.js';
import { iterate, lengthOf } from './sequences.js';
import { COSTS, type TemplateBudget } from './template-budget.js';
import { aligned, replaced } from './text-methods.js';
import { wrapped } from './text-wrapping.js';
import { Dict, Generator, Markup, TemplateError, textOf, Tuple, Undefined, type Value } from './values.js';

/** Jinja's filters of texts. */

/** Upper case may turn one character into three. */
const CAPITALS_GROWTH = 3;

/** A filter without arguments that writes any value as a text first. */
function plain(name: string, apply: (text: string) => Value): readonly [string, Filter] {
  return [
    name,
    (value, given, { budget }) => {
      given.bound(name, []);
      const text = pythonText(value, budget);
      budget.spend(text.length * CAPITALS_GROWTH);
      return likeMarkup(value, apply(text));
    },
  ];
}

/** Markup stays markup. */
function likeMarkup(value: Value, result: Value): Value {
  return value instanceof Markup && typeof result === 'string' ? new Markup(result) : result;
}

const WORD_STARTS = new RegExp(`([-${SPACES}({[<]+)`, 'u');

/** The filter title: words begin after spaces, hyphens and opening brackets. */
function titled(text: string): string {
  return text
    .split(WORD_STARTS)
    .map((part) => {
      const [first = ''] = part;
      return first.toUpperCase() + part.slice(first.length).toLowerCase();
    })
    .join('');
}

const trim: Filter = (value, given, { budget }) => {
  const [chars = null] = given.bound('trim', ['chars']);
  const text = pythonText(value, budget);
  budget.spend(text.length);
  return likeMarkup(value, stripped(text, chars === null ? null : requireText(chars, 'the argument of trim'), 'both'));
};

const replace: Filter = (value, given, { budget }) => {
  const [old = null, by = null, count = null] = given.bound('replace', ['old', 'new', 'count'], 2);
  const [text, from, to] = [value, old, by].map((part) => pythonText(part, budget));
  return replaced(text ?? '', from ?? '', to ?? '', count === null ? -1 : toPlace(count), budget);
};

const indent: Filter = (value, given, { budget }) => {
  const [width = 4, first = false, blank = false] = given.bound('indent', ['width', 'first', 'blank']);
  const text = `${requireText(value, 'an indented value')}\n`;
  const widthText = textOf(width);
  const size = widthText?.length ?? Math.max(0, toPlace(width));
  budget.read(text.length);
  const lines = linesOf(text);
  budget.spend(text.length * 2 + lines.length * (COSTS.item + size));
  const indention = widthText ?? ' '.repeat(size);
  const indented = isTrue(blank)
    ? lines.join(`\n${indention}`)
    : lines.map((line, index) => (index > 0 && line !== '' ? indention + line : line)).join('\n');
  return likeMarkup(value, isTrue(first) ? indention + indented : indented);
};

const center: Filter = (value, given, { budget }) => {
  const [width = 80] = given.bound('center', ['width']);
  return likeMarkup(value, aligned(pythonText(value, budget), toPlace(width), ' ', 'center', budget));
};

/** Characters that a text may have beyond the length, unless a template says otherwise. */
const LEEWAY = 5;

const truncate: Filter = (value, given, { budget }) => {
  const names = ['length', 'killwords', 'end', 'leeway'];
  const [length = 255, killwords = false, ending = '...', leeway = null] = given.bound('truncate', names);
  const end = requireText(ending, 'the end');
  const [most, more] = [toPlace(length), leeway === null ? LEEWAY : toPlace(leeway)];
  if (most < characterCount(end)) throw new TemplateError(`expected length >= ${characterCount(end)}, got ${most}`);
  if (more < 0) throw new TemplateError(`expected leeway >= 0, got ${more}`);
  if (lengthOf(value) <= most + more) return value;
  const text = requireText(value, 'a truncated value');
  budget.spend(text.length + end.length);
  const kept = firstCharacters(text, most - characterCount(end));
  if (isTrue(killwords)) return kept + end;
  const space = kept.lastIndexOf(' ');
  return (space < 0 ? kept : kept.slice(0, space)) + end;
};

const wordwrap: Filter = (value, given, { budget }) => {
  const names = ['width', 'break_long_words', 'wrapstring', 'break_on_hyphens'];
  const [width = 79, breaksWords = true, wrapstring = null, breaksHyphens = true] = given.bound('wordwrap', names);
  const text = requireText(value, 'a wrapped value');
  const end = wrapstring === null ? '\n' : requireText(wrapstring, 'wrapstring');
  budget.spend(text.length * (COSTS.listedCharacter + end.length));
  const style = { width: toPlace(width), breaksWords: isTrue(breaksWords), breaksHyphens: isTrue(breaksHyphens) };
  const lines = linesOf(text).map((line) => wrapped(line, style).join(end));
  return lines.join(end);
};

const format: Filter = (value, given, { budget }) => {
  if (given.positional.length > 0 && given.named.size > 0) {
    throw new TemplateError("can't handle positional and keyword arguments at the same time");
  }
  const values = given.named.size > 0 ? Dict.of(given.named) : new Tuple(given.positional);
  return likeMarkup(value, percentFormatted(pythonText(value, budget), values, budget));
};

const escape: Filter = (value, given, { budget }) => {
  given.bound('escape', []);
  return new Markup(escapedText(value, budget));
};

const forceescape: Filter = (value, given, { budget }) => {
  given.bound('forceescape', []);
  return new Markup(escapedAlways(pythonText(value, budget), budget));
};

const safe: Filter = (value, given, { budget }) => {
  given.bound('safe', []);
  return new Markup(pythonText(value, budget));
};

const string: Filter = (value, given, { budget }) => {
  given.bound('string', []);
  return value instanceof Markup ? value : pythonText(value, budget);
};

const striptags: Filter = (value, given, { budget }) => {
  given.bound('striptags', []);
  const text = pythonText(value, budget);
  const plainText = without('<', '>', without('<!--', '-->', text, budget), budget);
  return unescaped(stripped(plainText.replace(SPACE_RUNS, ' '), null, 'both'));
};

/** The text without its parts between two marks. */
function without(begin: string, end: string, text: string, budget: TemplateBudget): string {
  budget.spend(text.length * 2);
  let kept = '';
  let at = 0;
  for (;;) {
    const start = text.indexOf(begin, at);
    const stop = start < 0 ? -1 : text.indexOf(end, start);
    if (stop < 0) return kept + text.slice(at);
    kept += text.slice(at, start);
    at = stop + end.length;
  }
}

/** One half of a character that has two UTF-16 units, without the other one. */
const LONELY = /\p{Surrogate}/gu;
/** Characters of the longest escape of one character. */
const URL_GROWTH = 9;

function quoted(value: Value, isQuery: boolean, budget: TemplateBudget): string {
  const text = pythonText(value, budget);
  budget.spend(text.length * URL_GROWTH);
  const escaped = encodeURIComponent(text.replace(LONELY, '\ufffd')).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return isQuery ? escaped.replaceAll('%20', '+') : escaped.replaceAll('%2F', '/');
}

const urlencode: Filter = (value, given, { budget }) => {
  given.bound('urlencode', []);
  const isList =
    textOf(value) === null && (Array.isArray(value) || value instanceof Tuple || value instanceof Generator);
  if (!(value instanceof Dict) && !isList) return quoted(value, false, budget);
  const pairs: string[] = [];
  const items =
    value instanceof Dict ? [...value.items()].map((entry) => new Tuple([...entry])).values() : iterate(value, budget);
  for (let next = items.next(); next.done !== true; next = items.next()) {
    const pair = next.value instanceof Tuple ? next.value.items : Array.isArray(next.value) ? next.value : [];
    const [key, item] = pair;
    if (key === undefined || item === undefined || pair.length !== 2) throw new TemplateError('urlencode needs pairs');
    pairs.push(`${quoted(key, true, budget)}=${quoted(item, true, budget)}`);
  }
  return pairs.join('&');
};

const xmlattr: Filter = (value, given, { budget }) => {
  const [autospace = true] = given.bound('xmlattr', ['autospace']);
  if (!(value instanceof Dict)) throw new TemplateError('xmlattr needs a dictionary');
  const attributes: string[] = [];
  for (const [key, item] of value.items()) {
    if (item === null || item instanceof Undefined) continue;
    const name = requireText(key, 'the name of an attribute');
    if (/[ \t\n\r\f\v/>=]/.test(name)) throw new TemplateError(`Invalid character in attribute name: ${name}`);
    attributes.push(`${escapedText(key, budget)}="${escapedText(item, budget)}"`);
  }
  return (isTrue(autospace) && attributes.length > 0 ? ' ' : '') + attributes.join(' ');
};

export const TEXT_FILTERS: readonly (readonly [name: string, filter: Filter])[] = [
  plain('upper', (text) => text.toUpperCase()),
  plain('lower', (text) => text.toLowerCase()),
  plain('capitalize', capitalized),
  plain('title', titled),
  plain('wordcount', (text) => text.match(/[\p{L}\p{N}_]+/gu)?.length ?? 0),
  ['trim', trim],
  ['replace', replace],
  ['indent', indent],
  ['center', center],
  ['truncate', truncate],
  ['wordwrap', wordwrap],
  ['format', format],
  ['escape', escape],
  ['e', escape],
  ['forceescape', forceescape],
  ['safe', safe],
  ['string', string],
  ['striptags', striptags],
  ['urlencode', urlencode],
  ['xmlattr', xmlattr],
];
