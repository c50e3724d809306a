import type { AnswerDelta } from './chat-request.js';

/** Reads a part of an answer. It yields the answer deltas that it finds, and null if it needs more text. */
export type Reading<Result> = Generator<AnswerDelta | null, Result, void>;

/** The place where text ended: before a marker, or (null) at the answer's end. */
export interface TextEnd {
  marker: string | null;
  /** White space before the marker; it was held back. */
  space: string;
  /** True: there was some text. */
  any: boolean;
}

/** Texts to look for. If several match at one place, the longest counts. */
export class MarkerSet {
  private readonly byFirst = new Map<string, string[]>();

  constructor(markers: Iterable<string>) {
    for (const marker of new Set(markers)) {
      const first = marker[0];
      if (first === undefined) continue;
      this.byFirst.set(
        first,
        [...(this.byFirst.get(first) ?? []), marker].sort((a, b) => b.length - a.length),
      );
    }
  }

  /** If there is nothing to look for, no text need be held back. */
  get isEmpty(): boolean {
    return this.byFirst.size === 0;
  }

  /**
   * Finds the first marker at or after `from`. Null with an index inside the text: a marker may begin there. Null with the text's length: there
   * is no marker. `whole`: no text follows.
   */
  find(text: string, from: number, whole: boolean): { index: number; marker: string | null } {
    for (let index = from; index < text.length; index++) {
      for (const marker of this.byFirst.get(text[index] ?? '') ?? []) {
        if (text.startsWith(marker, index)) return { index, marker };
        if (!whole && marker.length > text.length - index && marker.startsWith(text.slice(index))) {
          return { index, marker: null };
        }
      }
    }
    return { index: text.length, marker: null };
  }
}

const SPACE = /\s/;
/** Most white space before a marker that is dropped together with it. */
const SPACE_HELD_LIMIT = 64;
/** A character that JSON may have outside of strings. */
const JSON_CHARACTER = /[\s{}[\],:0-9a-zA-Z+.-]/;

/** The incoming text of an answer, with its readers. The readers find the same parts however the text is divided on arrival. */
export class AnswerInput {
  private buffer = '';
  private at = 0;
  private ended = false;
  /** The place to which a reader may go back; null: none. */
  private returnPoint: number | null = null;

  append(text: string): void {
    const from = this.returnPoint ?? this.at;
    this.buffer = this.buffer.slice(from) + text;
    this.at -= from;
    if (this.returnPoint !== null) this.returnPoint = 0;
  }

  /** No text follows. */
  end(): void {
    this.ended = true;
  }

  /** Marks this place, so that a reader may go back to it. */
  keep(): void {
    this.returnPoint = this.at;
  }

  /** Removes the mark of `keep`. */
  drop(): void {
    this.returnPoint = null;
  }

  /** Goes back to the place where `keep` was called. */
  goBack(): void {
    this.at = this.returnPoint ?? this.at;
    this.returnPoint = null;
  }

  /** Returns the next character without taking it; '' at the answer's end. */
  *peek(): Reading<string> {
    while (this.at >= this.buffer.length && !this.ended) yield null;
    return this.buffer[this.at] ?? '';
  }

  /** Takes the next character; '' at the answer's end. */
  *next(): Reading<string> {
    const character = yield* this.peek();
    this.at += character.length;
    return character;
  }

  /** Tells whether this text comes next. */
  *starts(text: string): Reading<boolean> {
    for (;;) {
      if (this.buffer.startsWith(text, this.at)) return true;
      const rest = this.buffer.slice(this.at, this.at + text.length);
      if (this.ended || !text.startsWith(rest)) return false;
      yield null;
    }
  }

  /** Takes this text if it comes next. */
  *take(text: string): Reading<boolean> {
    const found = yield* this.starts(text);
    if (found) this.at += text.length;
    return found;
  }

  /** Takes this text if it comes next, or a part of it that the answer's end cut off. */
  *takeEnd(text: string): Reading<void> {
    if (!(yield* this.take(text))) yield* this.takeCut(text);
  }

  /** Takes the rest of an answer that has ended, if the rest is empty or a beginning of this text. */
  *takeCut(text: string): Reading<boolean> {
    if (yield* this.starts(text)) return false;
    const rest = this.buffer.slice(this.at, this.at + text.length);
    if (!this.ended || !text.startsWith(rest)) return false;
    this.at += rest.length;
    return true;
  }

  /** Takes characters one by one as long as the pattern matches. */
  *takeWhile(pattern: RegExp): Reading<string> {
    let taken = '';
    for (;;) {
      const character = yield* this.peek();
      if (character === '' || !pattern.test(character)) return taken;
      taken += character;
      this.at += 1;
    }
  }

  *skipSpace(): Reading<void> {
    yield* this.takeWhile(SPACE);
  }

  /**
   * Takes the text before the first marker, and the marker. Null if the answer ends first: then all of it is taken. Null also if there is more
   * than `limit` before the marker: then nothing is taken.
   */
  *takeUntil(markers: MarkerSet, limit = Infinity): Reading<{ text: string; marker: string } | null> {
    let from = this.at;
    for (;;) {
      const start = this.at;
      const { index, marker } = markers.find(this.buffer, from, this.ended);
      if (index - start > limit) return null;
      if (marker !== null || this.ended) this.at = index + (marker ?? '').length;
      if (marker !== null) return { text: this.buffer.slice(start, index), marker };
      if (this.ended) return null;
      const ahead = index - start;
      yield null;
      from = this.at + ahead;
    }
  }

  /**
   * Yields the text before the first marker as it comes, and takes the marker. White space before a marker is held back, up to a limit. It is
   * yielded if the answer ends instead. `trimStart`: white space at the text's beginning is dropped.
   */
  *text(markers: MarkerSet, makeDelta: (text: string) => AnswerDelta, trimStart: boolean): Reading<TextEnd> {
    let any = false;
    // White space right before the next text that was already yielded, because it was above the limit.
    let yieldedSpace = 0;
    for (;;) {
      const { index, marker } = markers.find(this.buffer, this.at, this.ended);
      if (trimStart && !any) while (this.at < index && SPACE.test(this.buffer[this.at] ?? '')) this.at += 1;
      const over = this.ended && marker === null;
      const run = this.spaceBefore(index);
      const wholeRun = index - run <= this.at ? yieldedSpace + run : run;
      const held = over || markers.isEmpty || wholeRun > SPACE_HELD_LIMIT ? 0 : run;
      const end = this.beforeHalf(index - held);
      if (end > this.at) {
        any = true;
        yieldedSpace = held === 0 ? wholeRun : 0;
        const text = this.buffer.slice(this.at, end);
        this.at = end;
        yield makeDelta(text);
      }
      if (marker !== null) {
        const space = this.buffer.slice(this.at, index);
        this.at = index + marker.length;
        return { marker, space, any };
      }
      if (over) return { marker, space: '', any };
      yield null;
    }
  }

  /** Like `text`, but white space counts as any other text. */
  *wholeText(markers: MarkerSet, makeDelta: (text: string) => AnswerDelta): Reading<{ marker: string | null }> {
    for (;;) {
      const { index, marker } = markers.find(this.buffer, this.at, this.ended);
      const end = marker !== null || this.ended ? index : this.beforeHalf(index);
      const text = this.buffer.slice(this.at, end);
      this.at = end;
      if (text !== '') yield makeDelta(text);
      if (marker !== null) this.at += marker.length;
      if (marker !== null || this.ended) return { marker };
      yield null;
    }
  }

  /** Yields a JSON value as it comes; false: the answer, or the part that looked like JSON, ended before the value did. */
  *json(makeDelta: (text: string) => AnswerDelta): Reading<boolean> {
    const value = new JsonExtent();
    for (;;) {
      const start = this.at;
      while (this.at < this.buffer.length && !value.ended && value.takes(this.buffer[this.at] ?? '')) this.at += 1;
      if (this.at > start) yield makeDelta(this.buffer.slice(start, this.at));
      if (value.ended) return value.whole;
      if (this.at >= this.buffer.length) {
        if (this.ended) return value.wholeAtEnd;
        yield null;
      }
    }
  }

  /** A JSON value as text; null: there is none, or it does not end. */
  *jsonText(): Reading<string | null> {
    let text = '';
    const reading = this.json((part) => ({ kind: 'content', text: part }));
    for (let step = reading.next(); ; step = reading.next()) {
      if (step.done === true) return step.value ? text.trimEnd() : null;
      if (step.value?.kind === 'content') text += step.value.text;
      else yield null;
    }
  }

  /** The value of a JSON string; null: there is none, or it does not end. */
  *jsonString(): Reading<string | null> {
    if ((yield* this.peek()) !== '"') return null;
    const text = yield* this.jsonText();
    if (text === null) return null;
    return parsedString(text);
  }

  /** Counts the white space right before `index`. The count stops at one more than the limit. */
  private spaceBefore(index: number): number {
    let start = index;
    while (start > this.at && index - start <= SPACE_HELD_LIMIT && SPACE.test(this.buffer[start - 1] ?? '')) start -= 1;
    return index - start;
  }

  /** Returns `end`, or one less if the text there stops in the middle of a character. */
  private beforeHalf(end: number): number {
    const last = this.buffer.charCodeAt(end - 1);
    return !this.ended && end > this.at && end === this.buffer.length && last >= 0xd800 && last < 0xdc00
      ? end - 1
      : end;
  }
}

/** Follows a JSON value to its end, character by character. It does not check the inside of the value. */
class JsonExtent {
  ended = false;
  /** True: the value ended in a complete form. */
  whole = false;
  private depth = 0;
  private inString = false;
  private escaped = false;
  /** True: inside a number, true, false or null. */
  private inWord = false;

  /** True: the value is complete if the answer ends here, because a number or word needs no end mark. */
  get wholeAtEnd(): boolean {
    return this.inWord && this.depth === 0;
  }

  /** Tells whether the character belongs to the value; false ends the value. */
  takes(character: string): boolean {
    if (this.inString) return this.takesInString(character);
    if (this.depth === 0 && this.inWord && /[\s,}\]:]/.test(character)) return this.end(true, false);
    if (character === '"') {
      if (this.inWord && this.depth === 0) return this.end(false, false);
      this.inString = true;
      return true;
    }
    if (!JSON_CHARACTER.test(character)) return this.end(false, false);
    if (character === '{' || character === '[') this.depth += 1;
    else if (character === '}' || character === ']') {
      if (this.depth === 0) return this.end(false, false);
      this.depth -= 1;
      if (this.depth === 0) return this.end(true, true);
    } else if (this.depth === 0) {
      if (SPACE.test(character) || character === ',' || character === ':') return this.end(false, false);
      this.inWord = true;
    }
    return true;
  }

  private takesInString(character: string): boolean {
    if (this.escaped) this.escaped = false;
    else if (character === '\\') this.escaped = true;
    else if (character === '"') {
      this.inString = false;
      if (this.depth === 0) return this.end(true, true);
    }
    return true;
  }

  private end(whole: boolean, taken: boolean): boolean {
    this.ended = true;
    this.whole = whole;
    return taken;
  }
}

function parsedString(text: string): string | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'string' ? value : null;
  } catch {
    return null;
  }
}
