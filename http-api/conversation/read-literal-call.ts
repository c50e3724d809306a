import { isJson } from '../../shared/base/json/is-json.js';
import { MarkerSet, type AnswerInput, type Reading } from './answer-input.js';
import type { CallBook } from './call-book.js';
import type { LiteralBody } from './call-syntax.js';

const KEY_CHARACTER = /[\p{L}\p{N}_.$-]/u;
/** Most levels of nested lists and objects. */
const DEPTH_LIMIT = 64;
const WORDS = new Map([
  ['True', 'true'],
  ['False', 'false'],
  ['None', 'null'],
]);

/** Reads a call whose arguments are literals. An argument is yielded when its value is complete. */
export function* readLiteralCall(body: LiteralBody, input: AnswerInput, book: CallBook): Reading<boolean> {
  yield* input.skipSpace();
  if (body.prefix !== '' && !(yield* input.take(body.prefix))) return false;
  const name = yield* input.takeWhile(KEY_CHARACTER);
  if (name === '' || !(yield* input.take(body.arguments.begin))) return false;
  input.drop();
  yield book.begin(name);
  yield book.more('{');
  for (let count = 0; ; count++) {
    yield* input.takeWhile(/[\s,]/);
    if (yield* input.take(body.arguments.end)) break;
    const key = yield* readKey(body, input);
    if (key === null) return true;
    const value = yield* readLiteral(body, input, 0);
    if (value === null) return true;
    yield book.more(`${count === 0 ? '' : ', '}${JSON.stringify(key)}: ${value}`);
  }
  yield book.more('}');
  return true;
}

function* readKey({ quote, assign }: LiteralBody, input: AnswerInput): Reading<string | null> {
  const quoted = yield* readQuoted(quote, input);
  const key = quoted ?? (yield* input.takeWhile(KEY_CHARACTER));
  if (quoted === null && key === '') return null;
  yield* input.skipSpace();
  const assigned = (yield* input.take(assign)) || (yield* input.take(':'));
  yield* input.skipSpace();
  return assigned ? key : null;
}

/** Writes a key in the form that `readKey` reads: in quotes if it has characters other than those of names. */
export function literalKey(key: string): string {
  return key !== '' && [...key].every((character) => KEY_CHARACTER.test(character) && character.length === 1)
    ? key
    : JSON.stringify(key);
}

/** Reads a literal and returns it as JSON; null: it is no literal, or does not end. */
function* readLiteral(body: LiteralBody, input: AnswerInput, depth: number): Reading<string | null> {
  if (depth > DEPTH_LIMIT) return null;
  const text = yield* readQuoted(body.quote, input);
  if (text !== null) return JSON.stringify(text);
  const first = yield* input.peek();
  if (first === '{') return yield* readObject(body, input, depth);
  if (first === '[' || first === '(') return yield* readList(body, input, depth);
  const word = yield* input.takeWhile(/[A-Za-z0-9_.+-]/);
  const json = WORDS.get(word) ?? word;
  return isJson(json) ? json : null;
}

function* readList(body: LiteralBody, input: AnswerInput, depth: number): Reading<string | null> {
  const end = (yield* input.next()) === '[' ? ']' : ')';
  const items: string[] = [];
  for (;;) {
    yield* input.takeWhile(/[\s,]/);
    if (yield* input.take(end)) return `[${items.join(', ')}]`;
    const item = yield* readLiteral(body, input, depth + 1);
    if (item === null) return null;
    items.push(item);
  }
}

function* readObject(body: LiteralBody, input: AnswerInput, depth: number): Reading<string | null> {
  yield* input.take('{');
  const properties: string[] = [];
  for (;;) {
    yield* input.takeWhile(/[\s,]/);
    if (yield* input.take('}')) return `{${properties.join(', ')}}`;
    const key = yield* readKey(body, input);
    const value = key === null ? null : yield* readLiteral(body, input, depth + 1);
    if (key === null || value === null) return null;
    properties.push(`${JSON.stringify(key)}: ${value}`);
  }
}

/** Reads a text in quotes: the model's own, or those of Python and JSON. null: no quote begins here, or the text does not end. */
function* readQuoted(quote: string, input: AnswerInput): Reading<string | null> {
  if (quote.length > 1 && (yield* input.take(quote))) {
    return (yield* input.takeUntil(new MarkerSet([quote])))?.text ?? null;
  }
  const first = yield* input.peek();
  if (first !== '"' && first !== "'") return null;
  yield* input.next();
  let text = '';
  for (;;) {
    const character = yield* input.next();
    if (character === '') return null;
    if (character === first) return text;
    text += character === '\\' ? yield* readEscape(input) : character;
  }
}

const ESCAPES = new Map([
  ['n', '\n'],
  ['t', '\t'],
  ['r', '\r'],
  ['b', '\b'],
  ['f', '\f'],
  ['0', '\0'],
]);

/** Reads the character after a backslash. */
function* readEscape(input: AnswerInput): Reading<string> {
  const character = yield* input.next();
  const digits = new Map([
    ['x', 2],
    ['u', 4],
    ['U', 8],
  ]).get(character);
  if (digits === undefined) return ESCAPES.get(character) ?? character;
  let code = '';
  while (code.length < digits && /[0-9a-fA-F]/.test(yield* input.peek())) code += yield* input.next();
  const point = Number.parseInt(code, 16);
  if (code.length < digits || point > 0x10ffff) return `\\${character}${code}`;
  return digits === 4 ? String.fromCharCode(point) : String.fromCodePoint(point);
}
