import type { AnswerInput, Reading } from './answer-input.js';
import type { CallBook } from './call-book.js';
import type { CallSyntax, NamedBody } from './call-syntax.js';
import { readKeyedCall } from './read-keyed-call.js';
import { readLiteralCall } from './read-literal-call.js';

/** A character of a function's name; some models also write a path, or a number after a colon. */
export const NAME_CHARACTER = /[A-Za-z0-9_.:/-]/;
const BETWEEN_LISTED = /[\s[,;]/;
const AFTER_LISTED = /[\s\]]/;

/**
 * Reads the calls after a marker that was taken. Nothing is yielded before the name of a function is known. False: there is no call, and the
 * input is back at its old place.
 */
export function* readCalls(syntax: CallSyntax, marker: string, input: AnswerInput, book: CallBook): Reading<boolean> {
  input.keep();
  const sectionBegin = syntax.section.begin.trim();
  // Models of many forms also write a list of objects.
  const listed = syntax.body.kind !== 'literal' && (yield* startsList(input));
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

function* endOfSection({ section, call, body }: CallSyntax, input: AnswerInput, listed: boolean): Reading<void> {
  const list = listed || ('list' in body && body.list);
  if (section.end === '' && !list) return;
  if (list) yield* input.takeWhile(AFTER_LISTED);
  else yield* input.skipSpace();
  if (listed) yield* input.takeEnd(call.end.trim());
  yield* input.skipSpace();
  yield* input.takeEnd(section.end.trim());
}

/** Reads one call, up to the end of its arguments; false: there is no call, and nothing of it was yielded. */
function* readCall(syntax: CallSyntax, input: AnswerInput, book: CallBook, named: boolean): Reading<boolean> {
  const { body } = syntax;
  // Models of every form sometimes write an object.
  yield* input.skipSpace();
  if (body.kind === 'object' || (!named && (yield* input.peek()) === '{')) {
    return yield* readObjectCall(input, book, syntax.unmarked);
  }
  switch (body.kind) {
    case 'named':
      return yield* readNamedCall(body, input, book);
    case 'keyed':
      return yield* readKeyedCall(body, input, book, named);
    case 'literal':
      return yield* readLiteralCall(body, input, book);
  }
}

/** `onlyOffered`: an object with a function that was not offered is no call. `nested`: the object lies inside such an object. */
export function* readObjectCall(
  input: AnswerInput,
  book: CallBook,
  onlyOffered: boolean,
  nested = false,
): Reading<boolean> {
  yield* input.skipSpace();
  if (!(yield* input.take('{'))) return false;
  let named = false;
  let hasArguments = false;
  let early: string | null = null;
  for (;;) {
    yield* input.takeWhile(/[\s,]/);
    if (yield* input.take('}')) {
      if (named && !hasArguments) yield book.more('{}');
      break;
    }
    const key = yield* objectKey(input);
    if (key === null) break;
    if (!named && !nested && key === 'function' && (yield* input.peek()) === '{') {
      // {"type": "function", "function": {"name": ...}}
      const inside = yield* readObjectCall(input, book, onlyOffered, true);
      if (!inside) return false;
      [named, hasArguments] = [true, true];
    } else if (!named && (key === 'name' || key === 'function')) {
      const name = yield* input.jsonString();
      if (name === null || name === '' || (onlyOffered && !book.isOffered(name))) return false;
      named = true;
      input.drop();
      yield book.begin(name);
      if (early !== null) yield book.more(early);
      hasArguments = early !== null;
    } else if ((key === 'arguments' || key === 'parameters') && !hasArguments && early === null) {
      if (named) hasArguments = yield* tellArguments(input, book);
      else early = yield* argumentsText(input);
      if (!named && early === null) return false;
    } else if ((yield* input.jsonText()) === null) break;
  }
  return named;
}

/** Reads the key of a property and its colon; null: there is none. */
function* objectKey(input: AnswerInput): Reading<string | null> {
  const key = yield* input.jsonString();
  if (key === null) return null;
  yield* input.skipSpace();
  if (!(yield* input.take(':'))) return null;
  yield* input.skipSpace();
  return key;
}

/** Yields arguments as they come; some models write them as a string that holds JSON. */
function* tellArguments(input: AnswerInput, book: CallBook): Reading<boolean> {
  if ((yield* input.peek()) === '{') {
    yield* input.json((text) => book.more(text));
    return true;
  }
  const text = yield* argumentsText(input);
  if (text !== null) yield book.more(text);
  return text !== null;
}

/** Reads whole arguments; null: they do not end, or are missing. */
function* argumentsText(input: AnswerInput): Reading<string | null> {
  if ((yield* input.peek()) === '"') return yield* input.jsonString();
  const text = yield* input.jsonText();
  return text === 'null' ? '{}' : text;
}

function* readNamedCall(body: NamedBody, input: AnswerInput, book: CallBook): Reading<boolean> {
  yield* input.take(body.prefix);
  const written = yield* input.takeWhile(NAME_CHARACTER);
  const name = body.numbered ? written.replace(/:\d+$/, '') : written;
  if (name === '') return false;
  if (body.idMarker !== '' && (yield* input.take(body.idMarker))) yield* input.takeWhile(NAME_CHARACTER);
  yield* input.skipSpace();
  const isBetween = yield* input.take(body.between.trim());
  yield* input.skipSpace();
  const next = yield* input.peek();
  const isCut = next === '' && isBetween && body.between !== '';
  if (next !== '{' && !isCut) return false;
  input.drop();
  yield book.begin(name);
  if (isCut) return true;
  yield* input.json((text) => book.more(text));
  if (body.after !== '') {
    yield* input.skipSpace();
    yield* input.takeEnd(body.after.trim());
  }
  return true;
}
