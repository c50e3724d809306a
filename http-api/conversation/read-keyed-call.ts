import { MarkerSet, type AnswerInput, type Reading } from './answer-input.js';
import type { CallBook } from './call-book.js';
import type { KeyedBody } from './call-syntax.js';
import { isText, jsonOfText } from './argument-text.js';

/** Most characters of an argument's key; a longer text is no key. */
const KEY_LENGTH_LIMIT = 1024;

/** Most white space between a JSON value and its end marker. */
const SPACE_BEHIND_LIMIT = 64;

/** `named`: the text before the name was already taken. */
export function* readKeyedCall(body: KeyedBody, input: AnswerInput, book: CallBook, named: boolean): Reading<boolean> {
  yield* input.skipSpace();
  if (!named && !(yield* input.take(body.name.begin))) return false;
  const name = (yield* input.takeWhile(/[^\s<>"]/)).trim();
  if (name === '') return false;
  if (body.name.end !== '' && !(yield* input.take(body.name.end))) return false;
  yield* input.skipSpace();
  // An argument or an end must follow a name; with other text it is no call.
  if ((yield* input.peek()) !== '<') return false;
  input.drop();
  yield book.begin(name);
  yield book.more('{');
  for (let count = 0; ; count++) {
    const key = yield* readKey(body, input);
    if (key === null) break;
    yield book.more(`${count === 0 ? '' : ', '}${JSON.stringify(key)}: `);
    if (!(yield* readValue(body, input, book, book.schemaOf(name, key)))) return true;
  }
  yield* input.skipSpace();
  if (yield* input.takeCut(body.key.begin.trim())) return true;
  yield book.more('}');
  yield* input.takeEnd(body.after.trim());
  return true;
}

function* readKey(body: KeyedBody, input: AnswerInput): Reading<string | null> {
  yield* input.skipSpace();
  if (!(yield* input.take(body.key.begin.trim()))) return null;
  const key = yield* input.takeUntil(new MarkerSet([body.key.end]), KEY_LENGTH_LIMIT);
  if (key === null) return null;
  if (body.value.begin !== '') {
    yield* input.skipSpace();
    if (!(yield* input.take(body.value.begin.trim()))) {
      yield* input.takeCut(body.value.begin.trim());
      return null;
    }
  }
  return key.text.trim();
}

/** Yields texts as they come, other values when they are complete. False: the answer ended first. */
function* readValue(body: KeyedBody, input: AnswerInput, book: CallBook, schema: object | null): Reading<boolean> {
  const ends = new MarkerSet([body.value.end, ...(body.ownLines ? [`\n${body.value.end}`] : [])]);
  if (body.ownLines) yield* input.take('\n');
  if (isText(schema)) {
    yield book.more('"');
    const { marker } = yield* input.wholeText(ends, (text) => book.more(JSON.stringify(text).slice(1, -1)));
    if (marker !== null) yield book.more('"');
    return marker !== null;
  }
  const json = yield* readJsonValue(ends, input);
  const value = json ?? (yield* input.takeUntil(ends))?.text ?? null;
  if (value === null) return false;
  yield book.more(jsonOfText(value, schema));
  return true;
}

/** Reads a JSON value whose strings may contain an end marker; null: there is no such value, and nothing was taken. */
function* readJsonValue(ends: MarkerSet, input: AnswerInput): Reading<string | null> {
  input.keep();
  const first = yield* input.peek();
  const json = ['{', '[', '"'].includes(first) ? yield* input.jsonText() : null;
  if (json !== null) {
    const behind = yield* input.takeUntil(ends, SPACE_BEHIND_LIMIT);
    if (behind !== null && behind.text.trim() === '') {
      input.drop();
      return json;
    }
  }
  input.goBack();
  return null;
}
