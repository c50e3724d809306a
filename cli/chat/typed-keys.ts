/** The keys of a terminal that edit a draft, with the lines of before. All functions are pure. */
import type { Key } from 'node:readline';
import {
  type Draft,
  draftOf,
  EMPTY_DRAFT,
  inserted,
  leftOf,
  lineEndOf,
  lineStartOf,
  moved,
  removedTo,
  rightOf,
  wordLeftOf,
  wordRightOf,
} from './draft.js';
import { placeInNextRow, type RowFrame } from './draft-rows.js';

/** The state of typing since the last line was sent. */
export interface Typing {
  readonly draft: Draft;
  /** Index in `entries` of the line that is shown. The number of entries: the new draft is shown. */
  readonly entry: number;
  /** Lines that were typed before, the oldest first. */
  readonly entries: readonly string[];
  /** Drafts of entries that were left, by their index. A changed line of before stays changed until something is sent. */
  readonly left: ReadonlyMap<number, Draft>;
  /** Text that Ctrl-K, Ctrl-U or Ctrl-W has removed, for Ctrl-Y. */
  readonly removed: string;
}

/** The request of a key that does not change the draft. */
export type KeyRequest = 'send' | 'interrupt' | 'end' | 'redraw' | 'suspend';

export type KeyEffect = { readonly typing: Typing } | { readonly request: KeyRequest };

export function typingOf(entries: readonly string[], removed = ''): Typing {
  return { draft: EMPTY_DRAFT, entry: entries.length, entries, left: new Map(), removed };
}

/** Shift-Enter in terminals that tell it from Enter. */
const SHIFT_ENTER = '\u001b[13;2u';
// The text of a key that is no character begins with a control character.
const CONTROL_CHARACTER = /^[\u0000-\u001f\u007f]/;

/** The effect of a key. `text`: what it writes. */
export function keyEffect(typing: Typing, text: string, key: Key, frame: RowFrame): KeyEffect {
  const name = key.name ?? '';
  const isNewLine = key.sequence === SHIFT_ENTER || (key.meta === true && (name === 'return' || name === 'enter'));
  if (isNewLine) return edited(typing, inserted(typing.draft, '\n'));
  if (key.ctrl === true) return controlKey(typing, name, frame);
  if (key.meta === true) return metaKey(typing, name);
  return plainKey(typing, name, frame) ?? typedText(typing, text);
}

function typedText(typing: Typing, text: string): KeyEffect {
  return text === '' || CONTROL_CHARACTER.test(text) ? { typing } : edited(typing, inserted(typing.draft, text));
}

function plainKey(typing: Typing, name: string, frame: RowFrame): KeyEffect | null {
  const { draft } = typing;
  switch (name) {
    case 'return':
    case 'enter':
      return { request: 'send' };
    case 'left':
      return goTo(typing, leftOf(draft));
    case 'right':
      return goTo(typing, rightOf(draft));
    case 'home':
      return goTo(typing, lineStartOf(draft));
    case 'end':
      return goTo(typing, lineEndOf(draft));
    case 'up':
      return vertically(typing, -1, frame);
    case 'down':
      return vertically(typing, 1, frame);
    case 'backspace':
      return dropTo(typing, leftOf(draft));
    case 'delete':
      return dropTo(typing, rightOf(draft));
    case 'tab':
      return edited(typing, inserted(draft, '\t'));
    default:
      return null;
  }
}

function controlKey(typing: Typing, name: string, frame: RowFrame): KeyEffect {
  const { draft, removed } = typing;
  switch (name) {
    case 'c':
      return { request: 'interrupt' };
    case 'd':
      return draft.text === '' ? { request: 'end' } : dropTo(typing, rightOf(draft));
    case 'l':
      return { request: 'redraw' };
    case 'z':
      return { request: 'suspend' };
    case 'a':
      return goTo(typing, lineStartOf(draft));
    case 'e':
      return goTo(typing, lineEndOf(draft));
    case 'b':
      return goTo(typing, leftOf(draft));
    case 'f':
      return goTo(typing, rightOf(draft));
    case 'left':
      return goTo(typing, wordLeftOf(draft));
    case 'right':
      return goTo(typing, wordRightOf(draft));
    case 'p':
      return toEntry(typing, typing.entry - 1);
    case 'n':
      return toEntry(typing, typing.entry + 1);
    case 'h':
      return dropTo(typing, leftOf(draft));
    case 'u':
      return cutTo(typing, lineStartOf(draft));
    case 'k':
      return cutTo(typing, lineEndOf(draft));
    case 'w':
      return cutTo(typing, wordLeftOf(draft));
    case 'y':
      return edited(typing, inserted(draft, removed));
    default:
      return plainKey(typing, name, frame) ?? { typing };
  }
}

function metaKey(typing: Typing, name: string): KeyEffect {
  const { draft } = typing;
  switch (name) {
    case 'b':
    case 'left':
      return goTo(typing, wordLeftOf(draft));
    case 'f':
    case 'right':
      return goTo(typing, wordRightOf(draft));
    case 'd':
    case 'delete':
      return cutTo(typing, wordRightOf(draft));
    case 'backspace':
      return cutTo(typing, wordLeftOf(draft));
    default:
      return { typing };
  }
}

/** Moves by a row of the draft; past its first or last row, to the line that was typed before or after it. */
function vertically(typing: Typing, step: -1 | 1, frame: RowFrame): KeyEffect {
  const place = placeInNextRow(typing.draft, step, frame);
  return place === null ? toEntry(typing, typing.entry + step) : goTo(typing, place);
}

/** The draft that is left stays as it is, and comes back. */
function toEntry(typing: Typing, entry: number): KeyEffect {
  const { draft, entries } = typing;
  if (entry < 0 || entry > entries.length) return { typing };
  const left = new Map(typing.left).set(typing.entry, draft);
  return { typing: { ...typing, entry, left, draft: left.get(entry) ?? draftOf(entries[entry] ?? '') } };
}

function edited(typing: Typing, draft: Draft): KeyEffect {
  return { typing: { ...typing, draft } };
}

function goTo(typing: Typing, place: number): KeyEffect {
  return edited(typing, moved(typing.draft, place));
}

function dropTo(typing: Typing, place: number): KeyEffect {
  return edited(typing, removedTo(typing.draft, place).draft);
}

function cutTo(typing: Typing, place: number): KeyEffect {
  const { draft, removed } = removedTo(typing.draft, place);
  return { typing: { ...typing, draft, removed: removed === '' ? typing.removed : removed } };
}
