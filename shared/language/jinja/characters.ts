import { SPACES } from './lexer.js';

/** Texts as rows of characters, as in Python. A character outside the first plane has two UTF-16 units. */

/** One half of a character that has two UTF-16 units. */
const SURROGATE = /[\ud800-\udfff]/;
const PAIRS = /[\ud800-\udbff][\udc00-\udfff]/g;

/** Every character is one UTF-16 unit. */
export function isPlain(text: string): boolean {
  return !SURROGATE.test(text);
}

export function characterCount(text: string): number {
  if (isPlain(text)) return text.length;
  return text.length - (text.match(PAIRS)?.length ?? 0);
}

/** The place in UTF-16 units of a place in characters. */
export function unitOf(text: string, place: number): number {
  if (place <= 0 || isPlain(text)) return Math.max(0, place);
  let [unit, count] = [0, 0];
  for (const character of text) {
    if (count >= place) break;
    count += 1;
    unit += character.length;
  }
  return unit + Math.max(0, place - count);
}

/** The first `count` characters. */
export function firstCharacters(text: string, count: number): string {
  return text.slice(0, unitOf(text, count));
}

export function countedSpaces(count: number): string {
  return ' '.repeat(Math.max(0, count));
}

const LEADING_SPACE = new RegExp(`^[${SPACES}]+`, 'u');
const SPACE = new RegExp(`[${SPACES}]`, 'u');
export const SPACE_RUNS = new RegExp(`[${SPACES}]+`, 'gu');
const LINE_ENDS = /\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]/g;

export function isSpace(text: string): boolean {
  return text !== '' && text.replace(SPACE_RUNS, '') === '';
}

/** Python's strip(): `chars` are the characters to be cut off; null: white space. */
export function stripped(text: string, chars: string | null, sides: 'both' | 'left' | 'right'): string {
  if (chars === null) {
    const left = sides === 'right' ? text : text.replace(LEADING_SPACE, '');
    if (sides === 'left') return left;
    let end = left.length;
    while (end > 0 && SPACE.test(left[end - 1] ?? '')) end -= 1;
    return left.slice(0, end);
  }
  const cut = new Set(chars);
  const characters = isPlain(text) ? text : [...text];
  let [start, end] = [0, characters.length];
  if (sides !== 'right') while (start < end && cut.has(characters[start] ?? '')) start += 1;
  if (sides !== 'left') while (end > start && cut.has(characters[end - 1] ?? '')) end -= 1;
  const kept = characters.slice(start, end);
  return typeof kept === 'string' ? kept : kept.join('');
}

/** Python's splitlines(). */
export function linesOf(text: string, keepsEnds = false): string[] {
  const lines: string[] = [];
  let start = 0;
  for (const { index, 0: end } of text.matchAll(LINE_ENDS)) {
    lines.push(text.slice(start, keepsEnds ? index + end.length : index));
    start = index + end.length;
  }
  if (start < text.length) lines.push(text.slice(start));
  return lines;
}

/** Number of times that a part occurs. An empty part occurs before each character, and once at the end. */
export function occurrences(text: string, part: string): number {
  if (part === '') return characterCount(text) + 1;
  let count = 0;
  for (let at = text.indexOf(part); at >= 0; at = text.indexOf(part, at + part.length)) count += 1;
  return count;
}

/** The first letter of a word as it stands in titles. */
function titleLetter(letter: string): string {
  const [first = '', ...rest] = letter.toUpperCase();
  const title = TITLE_LETTERS.get(first) ?? first;
  return title + rest.join('').toLowerCase();
}

/** Letters whose form in titles is not their upper case. */
const TITLE_LETTERS: ReadonlyMap<string, string> = new Map([
  ['\u01c4', '\u01c5'],
  ['\u01c7', '\u01c8'],
  ['\u01ca', '\u01cb'],
  ['\u01f1', '\u01f2'],
]);

export function capitalized(text: string): string {
  const [first = ''] = text;
  return titleLetter(first) + text.slice(first.length).toLowerCase();
}

const CASED = /\p{Lowercase}|\p{Uppercase}|\p{Lt}/u;
const CASED_RUNS = /(?:\p{Lowercase}|\p{Uppercase}|\p{Lt})+/gu;

/** Python's title(): each run of letters with cases begins with a capital. */
export function titled(text: string): string {
  return text.replace(CASED_RUNS, (run) => capitalized(run));
}

export function swappedCases(text: string): string {
  return [...text]
    .map((character) => (/\p{Lowercase}/u.test(character) ? character.toUpperCase() : character.toLowerCase()))
    .join('');
}

/** At least one letter with cases, and none of the other case. */
export function isAllCase(text: string, kind: 'lower' | 'upper'): boolean {
  const other = kind === 'lower' ? /\p{Uppercase}|\p{Lt}/u : /\p{Lowercase}|\p{Lt}/u;
  return CASED.test(text) && !other.test(text);
}

export function isTitle(text: string): boolean {
  let [isInWord, hasWord] = [false, false];
  for (const character of text) {
    if (/\p{Uppercase}|\p{Lt}/u.test(character)) {
      if (isInWord) return false;
      isInWord = hasWord = true;
    } else if (/\p{Lowercase}/u.test(character)) {
      if (!isInWord) return false;
      hasWord = true;
    } else isInWord = false;
  }
  return hasWord;
}

const DIGIT =
  '\\p{Nd}\\u00b2\\u00b3\\u00b9\\u1369-\\u1371\\u19da\\u2070\\u2074-\\u2079\\u2080-\\u2089\\u2460-\\u2468\\u2474-\\u247c\\u2488-\\u2490\\u24ea\\u24f5-\\u24fd\\u24ff\\u2776-\\u277e\\u2780-\\u2788\\u278a-\\u2792';
const NUMERIC =
  '\\p{N}\\u4e00\\u4e03\\u4e09\\u4e5d\\u4e8c\\u4e94\\u516b\\u516d\\u5341\\u56db\\u767e\\u5343\\u4e07\\u96f6';
/** Tests of all characters, by the names of Python's methods. The text is not empty. */
export const CHARACTER_TESTS: Readonly<Record<string, RegExp>> = {
  isalpha: /^\p{L}+$/u,
  isdecimal: /^\p{Nd}+$/u,
  isdigit: new RegExp(`^[${DIGIT}]+$`, 'u'),
  isnumeric: new RegExp(`^[${NUMERIC}]+$`, 'u'),
  isalnum: new RegExp(`^[\\p{L}${NUMERIC}]+$`, 'u'),
  isidentifier: /^[\p{XID_Start}_]\p{XID_Continue}*$/u,
};
/** Tests that are also passed by an empty text. */
export const OPEN_CHARACTER_TESTS: Readonly<Record<string, RegExp>> = {
  isascii: /^[\x00-\x7f]*$/u,
  isprintable: /^(?:[^\p{C}\p{Z}]| )*$/u,
};
