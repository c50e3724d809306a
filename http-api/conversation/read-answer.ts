import { MarkerSet, type AnswerInput, type Reading } from './answer-input.js';
import type { CallBook } from './call-book.js';
import { callMarkers, type CallSyntax } from './call-syntax.js';
import type { AnswerDelta } from './chat-request.js';
import { readCalls, readObjectCall } from './read-calls.js';
import type { ReasoningStyle } from './reasoning-style.js';

/** The parts that an answer may have besides its content. */
export interface AnswerStyle {
  /** null: no text counts as a call. */
  calls: CallSyntax | null;
  reasoning: ReasoningStyle | null;
  /** Names of special tokens; they are removed from the answer's text. */
  hidden: readonly string[];
}

const content = (text: string): AnswerDelta => ({ kind: 'content', text });
const reasoning = (text: string): AnswerDelta => ({ kind: 'reasoning', text });

/** Reads an answer with reasoning between tags and calls between markers. `thinking`: the prompt has opened the reasoning. */
export function* readAnswer(style: AnswerStyle, input: AnswerInput, book: CallBook, thinking: boolean): Reading<void> {
  const reader = new AnswerReader(style, input, book);
  if (thinking) yield* reader.reasoning();
  if (style.calls?.unmarked === true) yield* reader.unmarkedCalls(style.calls);
  yield* reader.content();
}

class AnswerReader {
  private readonly markers: MarkerSet;
  private readonly callMarkers: ReadonlySet<string>;
  private readonly hidden: ReadonlySet<string>;
  /** True: white space at the beginning of content is dropped. */
  private trimStart = false;
  /** True: no content was yielded since the answer, or its last reasoning or call, began. */
  private fresh = true;
  private inAnswerTag = false;
  /** True: the answer has ended, and its reasoning was not closed. */
  private unclosed = false;

  constructor(
    private readonly style: AnswerStyle,
    private readonly input: AnswerInput,
    private readonly book: CallBook,
  ) {
    this.callMarkers = new Set(style.calls === null ? [] : callMarkers(style.calls));
    const { reasoning: tags } = style;
    const found = [...this.callMarkers, ...(tags === null ? [] : [tags.begin, tags.answerBegin, tags.answerEnd])];
    this.hidden = new Set(style.hidden.filter((name) => !found.includes(name)));
    this.markers = new MarkerSet([...found, ...this.hidden]);
  }

  *reasoning(): Reading<void> {
    const end = this.style.reasoning?.end ?? '';
    const markers = new MarkerSet([end, ...this.style.hidden, ...this.callMarkers]);
    let trim = true;
    for (;;) {
      const { marker, space, any } = yield* this.input.text(markers, reasoning, trim);
      if (any) trim = false;
      if (marker === null || marker === end) break;
      if (this.callMarkers.has(marker)) {
        if (yield* this.callOrThought(space, marker)) break;
      } else if (space !== '' && !trim) yield reasoning(space);
    }
    this.fresh = true;
    this.trimStart = true;
  }

  /**
   * Reads the text after a call marker inside reasoning. If the reasoning is closed later, the text is reasoning. Otherwise (the model has not
   * closed its reasoning) it is a call. True: no more reasoning follows. `space`: the white space before the marker.
   */
  private *callOrThought(space: string, marker: string): Reading<boolean> {
    const begun = space + this.shown(marker);
    const end = this.style.reasoning?.end ?? '';
    this.input.keep();
    const rest = this.unclosed ? null : yield* this.input.takeUntil(new MarkerSet([end]));
    if (rest !== null) {
      this.input.drop();
      const shown = this.style.hidden.reduce((text, name) => text.replaceAll(name, ''), rest.text);
      yield reasoning((begun + shown).trimEnd());
      return true;
    }
    this.unclosed = true;
    this.input.goBack();
    if (yield* this.calls(marker)) return true;
    yield reasoning(begun);
    return false;
  }

  /** A marker that marks nothing here, as text: nothing of a special token's name. */
  private shown(marker: string): string {
    return this.style.hidden.some((name) => marker.startsWith(name)) ? '' : marker;
  }

  *content(): Reading<void> {
    const tags = this.style.reasoning;
    for (;;) {
      const { marker, space, any } = yield* this.input.text(this.markers, content, this.trimStart);
      if (any) this.endBeginning();
      if (marker === null) return;
      if (this.hidden.has(marker)) {
        if (space !== '') yield content(space);
      } else if (this.fresh && marker === tags?.begin) yield* this.reasoning();
      else if (this.fresh && marker === tags?.answerBegin) [this.inAnswerTag, this.trimStart] = [true, true];
      else if (this.inAnswerTag && marker === tags?.answerEnd) this.inAnswerTag = false;
      else if (this.callMarkers.has(marker) && (yield* this.calls(marker))) [this.fresh, this.trimStart] = [true, true];
      else {
        yield content(space + this.shown(marker));
        this.endBeginning();
      }
    }
  }

  /** Reads calls without a marker: JSON at the beginning of the answer. */
  *unmarkedCalls(syntax: CallSyntax): Reading<void> {
    this.input.keep();
    yield* this.input.skipSpace();
    yield* this.input.take('<|python_tag|>');
    let found = false;
    while (yield* readObjectCall(this.input, this.book, syntax.unmarked)) {
      found = true;
      this.input.keep();
      yield* this.input.takeWhile(/[\s;,]/);
    }
    this.input.goBack();
    if (found) this.trimStart = true;
  }

  private *calls(marker: string): Reading<boolean> {
    const { calls } = this.style;
    return calls !== null && (yield* readCalls(calls, marker, this.input, this.book));
  }

  private endBeginning(): void {
    this.fresh = false;
    this.trimStart = false;
  }
}
