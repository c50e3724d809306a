import { MarkerSet, type AnswerInput, type Reading } from './answer-input.js';
import type { CallBook } from './call-book.js';
import type { AnswerDelta } from './chat-request.js';

const START = '<|start|>';
const CHANNEL = '<|channel|>';
const MESSAGE = '<|message|>';
/** Markers that end a message: its own end, or the beginning of another message. */
const ENDS = ['<|end|>', '<|call|>', '<|return|>', START, CHANNEL];

/**
 * Reads an answer of messages in channels (gpt-oss). A header names the channel, and the function that the message calls. Analysis is
 * reasoning, a message for a function is a call, all else is content. `calls`: functions were offered.
 */
export function* readHarmony(
  input: AnswerInput,
  book: CallBook,
  calls: boolean,
  hidden: readonly string[],
): Reading<void> {
  const others = hidden.filter((name) => !ENDS.includes(name));
  const ends = new MarkerSet([...ENDS, ...others]);
  const heads = new MarkerSet([MESSAGE]);
  let end: string | null = START;
  while (end !== null) {
    const header: string | null = yield* readHeader(input, end, heads);
    if (header === null) return;
    const called: string | undefined = /(?:^|\s)to=(?:functions\.)?([\w.-]+)/.exec(header)?.[1];
    const channel: string = new RegExp(`(?:^|${CHANNEL.replaceAll('|', '\\|')})\\s*(\\w+)`).exec(header)?.[1] ?? '';
    if (called !== undefined && calls) end = yield* readCall(called, input, book, ends);
    else end = yield* readText(channel === 'analysis' ? 'reasoning' : 'content', input, ends, others);
  }
}

/** Reads the text of a header: '' if there is no header; null: the answer ends in the header. */
function* readHeader(input: AnswerInput, begin: string, heads: MarkerSet): Reading<string | null> {
  if (begin === CHANNEL) return (yield* input.takeUntil(heads))?.text ?? null;
  if (begin !== START) {
    yield* input.skipSpace();
    if ((yield* input.peek()) === '') return null;
    if (!(yield* input.take(START)) && !(yield* input.starts(CHANNEL))) return '';
  }
  yield* input.take('assistant');
  const headed = (yield* input.starts(CHANNEL)) || (yield* input.starts(' to=')) || (yield* input.starts(MESSAGE));
  if (!headed) return '';
  return (yield* input.takeUntil(heads))?.text ?? null;
}

function* readCall(name: string, input: AnswerInput, book: CallBook, ends: MarkerSet): Reading<string | null> {
  yield book.begin(name);
  yield* input.skipSpace();
  const next = yield* input.peek();
  if (next === '{') yield* input.json((text) => book.more(text));
  // The arguments of an answer that is cut here are unknown.
  else if (next !== '') yield book.more('{}');
  return (yield* input.takeUntil(ends))?.marker ?? null;
}

function* readText(
  kind: 'reasoning' | 'content',
  input: AnswerInput,
  ends: MarkerSet,
  hidden: readonly string[],
): Reading<string | null> {
  const makeDelta = (text: string): AnswerDelta => ({ kind, text });
  for (;;) {
    const { marker } = yield* input.wholeText(ends, makeDelta);
    if (marker === null || !hidden.includes(marker)) return marker;
  }
}
