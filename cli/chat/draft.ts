/** A text that a user is typing, and the keys that change it. All functions are pure. */

/** `cursor`: index in `text`, in UTF-16 units, never inside of a character that is shown as one. */
export interface Draft {
  readonly text: string;
  readonly cursor: number;
}

export const EMPTY_DRAFT: Draft = { text: '', cursor: 0 };

/** The draft without the text that a key has removed, and that text, which Ctrl-Y puts back elsewhere. */
export interface Removal {
  readonly draft: Draft;
  readonly removed: string;
}

const SEGMENTER = new Intl.Segmenter(undefined, { granularity: 'grapheme' });
/** No character that is shown as one is longer, so the beginning of a long text need not be read to find the one before the cursor. */
const LONGEST_CHARACTER = 64;

export function draftOf(text: string): Draft {
  return { text, cursor: text.length };
}

export function inserted({ text, cursor }: Draft, added: string): Draft {
  return { text: text.slice(0, cursor) + added + text.slice(cursor), cursor: cursor + added.length };
}

/** The characters of a text, as a user counts them. */
export function characters(text: string): string[] {
  return Array.from(SEGMENTER.segment(text), ({ segment }) => segment);
}

export function leftOf({ text, cursor }: Draft): number {
  const before = characters(text.slice(Math.max(0, cursor - LONGEST_CHARACTER), cursor));
  return cursor - (before.at(-1)?.length ?? 0);
}

export function rightOf({ text, cursor }: Draft): number {
  const [next = ''] = characters(text.slice(cursor, cursor + LONGEST_CHARACTER));
  return cursor + next.length;
}

/** The beginning of the word to the left. */
export function wordLeftOf({ text, cursor }: Draft): number {
  return /[^\s]*\s*$/.exec(text.slice(0, cursor))?.index ?? 0;
}

/** The end of the word to the right. */
export function wordRightOf({ text, cursor }: Draft): number {
  return cursor + (/^\s*[^\s]*/.exec(text.slice(cursor))?.[0].length ?? 0);
}

export function lineStartOf({ text, cursor }: Draft): number {
  return text.lastIndexOf('\n', cursor - 1) + 1;
}

export function lineEndOf({ text, cursor }: Draft): number {
  const end = text.indexOf('\n', cursor);
  return end < 0 ? text.length : end;
}

export function moved(draft: Draft, cursor: number): Draft {
  return { ...draft, cursor };
}

/** Removes what lies between the cursor and another place. */
export function removedTo({ text, cursor }: Draft, place: number): Removal {
  const [from, to] = [Math.min(cursor, place), Math.max(cursor, place)];
  return { draft: { text: text.slice(0, from) + text.slice(to), cursor: from }, removed: text.slice(from, to) };
}
