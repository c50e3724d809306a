import {
  capitalized,
  CHARACTER_TESTS,
  characterCount,
  isAllCase,
  isSpace,
  isTitle,
  linesOf,
  occurrences,
  OPEN_CHARACTER_TESTS,
  stripped,
  swappedCases,
  titled,
  unitOf,
} from './characters.js';
import { isTrue } from './compare.js';
import type { TemplateContext } from './context.js';
import { bracesFormatted } from './format-braces.js';
import { requireText, toPlace } from './numbers.js';
import { splitAt, splitAtEnd, splitAtSpace } from './text-splitting.js';
import { placesOf, listOf, sizeOf } from './sequences.js';
import { COSTS, type TemplateBudget } from './template-budget.js';
import { Dict, Given, TemplateError, textOf, Tuple, type Value } from './values.js';

/** Python's methods of texts. */

type TextMethod = (text: string, given: Given, context: TemplateContext) => Value;

/** Upper case may turn one character into three. */
const CAPITALS_GROWTH = 3;

/** The method's function; null: texts have none of that name. */
export function textMethod(name: string): TextMethod | null {
  return METHODS.get(name) ?? null;
}

/** A method without arguments, whose result is a few times as long as the text at most. */
function plain(name: string, apply: (text: string) => Value): [string, TextMethod] {
  const method: TextMethod = (text, given, { budget }) => {
    given.unnamed(name, 0, 0);
    budget.spend(text.length * CAPITALS_GROWTH);
    return apply(text);
  };
  return [name, method];
}

function strips(name: string, sides: 'both' | 'left' | 'right'): [string, TextMethod] {
  const method: TextMethod = (text, given, { budget }) => {
    const [chars = null] = given.unnamed(name, 0, 1);
    budget.spend(text.length + sizeOf(chars));
    return stripped(text, chars === null ? null : requireText(chars, 'the argument of strip'), sides);
  };
  return [name, method];
}

/** The part of a text between two places of characters. Null: the start is after the end of the text. */
function partOf(text: string, start: Value, stop: Value): { part: string; first: number } | null {
  const length = characterCount(text);
  const [first, count] = placesOf(length, start, stop, 1);
  if (start !== null && toPlace(start) > length) return null;
  return { part: text.slice(unitOf(text, first), unitOf(text, first + count)), first };
}

function affixes(name: 'startswith' | 'endswith'): [string, TextMethod] {
  const method: TextMethod = (text, given, { budget }) => {
    const [wanted = null, start = null, stop = null] = given.unnamed(name, 1, 3);
    const parts = wanted instanceof Tuple ? wanted.items : [wanted];
    const texts = parts.map((part) => requireText(part, `the argument of ${name}`));
    budget.read(text.length + texts.reduce((sum, part) => sum + part.length + 1, 0));
    if (start === null && stop === null) {
      return texts.some((part) => (name === 'startswith' ? text.startsWith(part) : text.endsWith(part)));
    }
    budget.spend(text.length);
    const within = partOf(text, start, stop);
    if (within === null) return false;
    return texts.some((part) => (name === 'startswith' ? within.part.startsWith(part) : within.part.endsWith(part)));
  };
  return [name, method];
}

/** Methods that search for a part. `orFails`: the result is an error where the part is not found. */
function finds(name: string, fromEnd: boolean, orFails: boolean): [string, TextMethod] {
  const method: TextMethod = (text, given, { budget }) => {
    const [wanted, start = null, stop = null] = given.unnamed(name, 1, 3);
    const part = requireText(wanted, `the argument of ${name}`);
    budget.spend(text.length + part.length);
    const within = partOf(text, start, stop);
    const found = within === null ? -1 : fromEnd ? within.part.lastIndexOf(part) : within.part.indexOf(part);
    if (within !== null && found >= 0) return within.first + characterCount(within.part.slice(0, found));
    if (orFails) throw new TemplateError('substring not found');
    return -1;
  };
  return [name, method];
}

function countOf(text: string, given: Given, { budget }: TemplateContext): Value {
  const [wanted, start = null, stop = null] = given.unnamed('count', 1, 3);
  const part = requireText(wanted, 'the argument of count');
  budget.spend(text.length + part.length);
  const within = partOf(text, start, stop);
  return within === null ? 0 : occurrences(within.part, part);
}

function splits(name: 'split' | 'rsplit'): [string, TextMethod] {
  const method: TextMethod = (text, given, { budget }) => {
    const [separator = null, most = -1] = given.bound(name, ['sep', 'maxsplit']);
    const limit = toPlace(most) < 0 ? Infinity : toPlace(most);
    budget.read(text.length);
    const part = separator === null ? null : requireText(separator, 'a separator');
    if (part === '') throw new TemplateError('empty separator');
    budget.spend(text.length + (part === null ? text.length / 2 : occurrences(text, part) + 1) * COSTS.item);
    if (part === null) return splitAtSpace(text, limit, name === 'rsplit');
    return name === 'split' ? splitAt(text, part, limit) : splitAtEnd(text, part, limit);
  };
  return [name, method];
}

function partitions(name: 'partition' | 'rpartition'): [string, TextMethod] {
  const method: TextMethod = (text, given, { budget }) => {
    const [wanted] = given.unnamed(name, 1, 1);
    const separator = requireText(wanted, 'a separator');
    if (separator === '') throw new TemplateError('empty separator');
    budget.spend(text.length + COSTS.item);
    const at = name === 'partition' ? text.indexOf(separator) : text.lastIndexOf(separator);
    if (at < 0) return new Tuple(name === 'partition' ? [text, '', ''] : ['', '', text]);
    return new Tuple([text.slice(0, at), separator, text.slice(at + separator.length)]);
  };
  return [name, method];
}

/** Python's text.replace(from, to, count). A negative count replaces all. */
export function replaced(text: string, from: string, to: string, count: number, budget: TemplateBudget): string {
  budget.read(text.length + from.length);
  const most = count < 0 ? Infinity : count;
  const found = Math.min(most, occurrences(text, from));
  budget.spend(text.length + found * (to.length + COSTS.listedCharacter));
  if (found === 0) return text;
  if (from === '') return emptyReplaced(text, to, found);
  if (most === Infinity) return text.replaceAll(from, () => to);
  const parts = splitAt(text, from, most);
  return parts.join(to);
}

function emptyReplaced(text: string, to: string, count: number): string {
  const characters = [...text];
  const pieces = characters.map((character, index) => (index < count ? to + character : character));
  return pieces.join('') + (count > characters.length ? to : '');
}

function replaces(text: string, given: Given, { budget }: TemplateContext): Value {
  const [from, to, count = -1] = given.unnamed('replace', 2, 3);
  return replaced(
    text,
    requireText(from, 'the replaced part'),
    requireText(to, 'the replacement'),
    toPlace(count),
    budget,
  );
}

function aligns(name: 'ljust' | 'rjust' | 'center'): [string, TextMethod] {
  const method: TextMethod = (text, given, { budget }) => {
    const [width = 0, given2 = ' '] = given.unnamed(name, 1, 2);
    const fill = requireText(given2, 'a fill character');
    if (characterCount(fill) !== 1) throw new TemplateError('The fill character must be exactly one character long');
    return aligned(text, toPlace(width), fill, name, budget);
  };
  return [name, method];
}

/** The text with characters around it, so that it is as wide as wanted. */
export function aligned(
  text: string,
  width: number,
  fill: string,
  side: 'ljust' | 'rjust' | 'center',
  budget: TemplateBudget,
): string {
  const room = Math.max(0, width - characterCount(text));
  budget.spend(text.length + room * fill.length);
  // Python puts the odd character to the left if the width is odd.
  const before =
    side === 'ljust' ? 0 : side === 'rjust' ? room : Math.floor(room / 2) + (room % 2 === 1 && width % 2 === 1 ? 1 : 0);
  return fill.repeat(before) + text + fill.repeat(room - before);
}

function zeroFills(text: string, given: Given, { budget }: TemplateContext): Value {
  const [width = 0] = given.unnamed('zfill', 1, 1);
  const room = Math.max(0, toPlace(width) - characterCount(text));
  budget.spend(text.length + room);
  const sign = /^[+-]/.test(text) ? text.slice(0, 1) : '';
  return sign + '0'.repeat(room) + text.slice(sign.length);
}

function joins(text: string, given: Given, { budget }: TemplateContext): Value {
  const [items = null] = given.unnamed('join', 1, 1);
  const texts = listOf(items, budget).map((item, index) => {
    const part = textOf(item);
    if (part === null) throw new TemplateError(`sequence item ${index}: expected a text`);
    budget.spend(part.length + text.length + COSTS.place);
    return part;
  });
  return texts.join(text);
}

function removes(name: 'removeprefix' | 'removesuffix'): [string, TextMethod] {
  const method: TextMethod = (text, given, { budget }) => {
    const [wanted] = given.unnamed(name, 1, 1);
    const part = requireText(wanted, `the argument of ${name}`);
    budget.spend(text.length);
    if (part === '') return text;
    if (name === 'removeprefix') return text.startsWith(part) ? text.slice(part.length) : text;
    return text.endsWith(part) ? text.slice(0, -part.length) : text;
  };
  return [name, method];
}

function expandsTabs(text: string, given: Given, { budget }: TemplateContext): Value {
  const [size = 8] = given.bound('expandtabs', ['tabsize']);
  const width = Math.max(0, toPlace(size));
  budget.spend(text.length * COSTS.listedCharacter + occurrences(text, '\t') * width);
  let column = 0;
  return [...text]
    .map((character) => {
      if (character === '\t') {
        const spaces = width === 0 ? 0 : width - (column % width);
        column += spaces;
        return ' '.repeat(spaces);
      }
      column = character === '\n' || character === '\r' ? 0 : column + 1;
      return character;
    })
    .join('');
}

function splitsLines(text: string, given: Given, { budget }: TemplateContext): Value {
  const [keepsEnds = false] = given.bound('splitlines', ['keepends']);
  budget.spend(text.length * 2 + (occurrences(text, '\n') + 1) * COSTS.item);
  return linesOf(text, isTrue(keepsEnds));
}

function formatsMap(text: string, given: Given, context: TemplateContext): Value {
  const [mapping] = given.unnamed('format_map', 1, 1);
  if (!(mapping instanceof Dict)) throw new TemplateError('format_map needs a dictionary');
  const named = [...mapping.items()].flatMap(([key, value]): [string, Value][] => {
    const name = textOf(key);
    return name === null ? [] : [[name, value]];
  });
  return bracesFormatted(text, new Given([], new Map(named)), context);
}

const METHODS: ReadonlyMap<string, TextMethod> = new Map<string, TextMethod>([
  plain('upper', (text) => text.toUpperCase()),
  plain('lower', (text) => text.toLowerCase()),
  plain('casefold', (text) => text.toLowerCase().replaceAll('ß', 'ss')),
  plain('title', titled),
  plain('capitalize', capitalized),
  plain('swapcase', swappedCases),
  plain('isspace', isSpace),
  plain('istitle', isTitle),
  plain('islower', (text) => isAllCase(text, 'lower')),
  plain('isupper', (text) => isAllCase(text, 'upper')),
  ...Object.entries({ ...CHARACTER_TESTS, ...OPEN_CHARACTER_TESTS }).map(([name, pattern]) =>
    plain(name, (text) => pattern.test(text)),
  ),
  strips('strip', 'both'),
  strips('lstrip', 'left'),
  strips('rstrip', 'right'),
  affixes('startswith'),
  affixes('endswith'),
  finds('find', false, false),
  finds('rfind', true, false),
  finds('index', false, true),
  finds('rindex', true, true),
  ['count', countOf],
  splits('split'),
  splits('rsplit'),
  ['splitlines', splitsLines],
  partitions('partition'),
  partitions('rpartition'),
  ['replace', replaces],
  aligns('ljust'),
  aligns('rjust'),
  aligns('center'),
  ['zfill', zeroFills],
  ['join', joins],
  removes('removeprefix'),
  removes('removesuffix'),
  ['expandtabs', expandsTabs],
  ['format', (text, given, context) => bracesFormatted(text, given, context)],
  ['format_map', formatsMap],
]);
