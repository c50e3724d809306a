import type { AnswerInput, Reading } from './answer-input.js';
import type { CallBook } from './call-book.js';
import type { CallSyntax, NamedBody } from './call-syntax.js';
import { readKeyedCall } from './read-keyed-call.js';
import { readLiteralCall } from './read-literal-call.js';

/** Names of functions; some models write a number behind a colon, or a path. */
export const NAME_CHARACTER = /[A-Za-z0-9_.:/-]/;
const BETWEEN_LISTED = /[\s[,;]/;
const AFTER_LISTED = /[\s\]]/;

/**
 * Reads the calls that stand behind a marker which was taken. Nothing is told before the name of a function is known. False: there is no
 * call, and the input is where it was.
 */
export function* readCalls(syntax: CallSyntax, marker: string, input: AnswerInput, book: CallBook): Reading<boolean> {
  input.keep();
  const sectionBegin = syntax.section.begin.trim();
  // Hunyuan's and Mistral's models also write a list of objects.
  const listed = syntax.body.kind === 'named' && (yield* startsList(input));
  const callBegin = listed ? '' : syntax.call.begin.trim();
  const nameBegin = syntax.body.kind === 'keyed' ? syntax.body.name.begin : '';
  let opened = marker !== sectionBegin || callBegin === marker;
  let found = false;
  for (;;) {
    if (callBegin === '') yield* input.takeWhile(BETWEEN_LISTED);
    else if (!opened) {
      yield* input.skipSpace();
      if (!(yield* input.take(callBegin))) break;
    }
    opened = false;
    const named = !found && nameBegin !== '' && marker === nameBegin;
    if (!(yield* readCall(syntax, input, book, named))) break;
    found = true;
    yield* endOfCall(syntax, input);
    input.keep();
  }
  input.goBack();
  if (found) yield* endOfSection(syntax, input, listed);
  return found;
}

function* startsList(input: AnswerInput): Reading<boolean> {
  yield* input.skipSpace();
  return (yield* input.peek()) === '[';
}

function* endOfCall({ call }: CallSyntax, input: AnswerInput): Reading<void> {
  if (call.end === '') return;
  yield* input.skipSpace();
  yield* input.takeEnd(call.end.trim());
}

function* endOfSection({ section, body }: CallSyntax, input: AnswerInput, listed: boolean): Reading<void> {
  const list = listed || ('list' in body && body.list);
  if (section.end === '' && !list) return;
  if (list) yield* input.takeWhile(AFTER_LISTED);
  else yield* input.skipSpace();
  yield* input.takeEnd(section.end.trim());
}

/** One call, up to the end of its arguments; false before anything of it was told. */
function* readCall(syntax: CallSyntax, input: AnswerInput, book: CallBook, named: boolean): Reading<boolean> {
  const { body } = syntax;
  switch (body.kind) {
    case 'object':
      return yield* readObjectCall(input, book, syntax.unmarked);
    case 'named':
      return yield* readNamedCall(body, input, book);
    case 'keyed':
      return yield* readKeyedCall(body, input, book, named);
    case 'literal':
      return yield* readLiteralCall(body, input, book);
  }
}

/** `onlyOffered`: a function that was not offered makes it no call. `nested`: it is inside of such an object already. */
export function* readObjectCall(
  input: AnswerInput,
  book: CallBook,
  onlyOffered: boolean,
  nested = false,
): Reading<boolean> {
  yield* input.skipSpace();
  if (!(yield* input.take('{'))) return false;
  let named = false;
  let told = false;
  let early: string | null = null;
  for (;;) {
    yield* input.takeWhile(/[\s,]/);
    if (yield* input.take('}')) {
      if (named && !told) yield book.more('{}');
      break;
    }
    const key = yield* objectKey(input);
    if (key === null) break;
    if (!named && !nested && key === 'function' && (yield* input.peek()) === '{') {
      // {"type": "function", "function": {"name": ...}}
      const inside = yield* readObjectCall(input, book, onlyOffered, true);
      if (!inside) return false;
      [named, told] = [true, true];
    } else if (!named && (key === 'name' || key === 'function')) {
      const name = yield* input.jsonString();
      if (name === null || name === '' || (onlyOffered && !book.isOffered(name))) return false;
      named = true;
      input.drop();
      yield book.begin(name);
      if (early !== null) yield book.more(early);
      told = early !== null;
    } else if ((key === 'arguments' || key === 'parameters') && !told && early === null) {
      if (named) told = yield* tellArguments(input, book);
      else early = yield* argumentsText(input);
      if (!named && early === null) return false;
    } else if ((yield* input.jsonText()) === null) break;
  }
  return named;
}

/** The key of a member, and its colon; null: there is none. */
function* objectKey(input: AnswerInput): Reading<string | null> {
  const key = yield* input.jsonString();
  if (key === null) return null;
  yield* input.skipSpace();
  if (!(yield* input.take(':'))) return null;
  yield* input.skipSpace();
  return key;
}

/** Arguments as they come; some models write them as a string that holds JSON. */
function* tellArguments(input: AnswerInput, book: CallBook): Reading<boolean> {
  if ((yield* input.peek()) === '{') {
    yield* input.json((text) => book.more(text));
    return true;
  }
  const text = yield* argumentsText(input);
  if (text !== null) yield book.more(text);
  return text !== null;
}

/** null: they do not end, or are not there. */
function* argumentsText(input: AnswerInput): Reading<string | null> {
  if ((yield* input.peek()) === '"') return yield* input.jsonString();
  const text = yield* input.jsonText();
  return text === 'null' ? '{}' : text;
}

function* readNamedCall(body: NamedBody, input: AnswerInput, book: CallBook): Reading<boolean> {
  yield* input.skipSpace();
  if ((yield* input.peek()) === '{') return yield* readObjectCall(input, book, false);
  yield* input.take(body.prefix);
  const written = yield* input.takeWhile(NAME_CHARACTER);
  const name = body.numbered ? written.replace(/:\d+$/, '') : written;
  if (name === '') return false;
  if (body.idMarker !== '' && (yield* input.take(body.idMarker))) yield* input.takeWhile(NAME_CHARACTER);
  yield* input.skipSpace();
  yield* input.take(body.between.trim());
  yield* input.skipSpace();
  if ((yield* input.peek()) !== '{') return false;
  input.drop();
  yield book.begin(name);
  yield* input.json((text) => book.more(text));
  if (body.after !== '') {
    yield* input.skipSpace();
    yield* input.takeEnd(body.after.trim());
  }
  return true;
}
