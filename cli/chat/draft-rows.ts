/** The rows of the terminal in which a draft is shown. All functions are pure. */
import stringWidth from 'string-width';
import { printableLine } from '../../shared/base/text/printable-text.js';
import { characters, type Draft } from './draft.js';

/** The size of the terminal, and what stands before the first line of the draft and before each further one. */
export interface RowFrame {
  readonly columns: number;
  readonly rows: number;
  readonly prompt: string;
  readonly morePrompt: string;
}

/** A place in the draft, as it is shown. */
interface Place {
  /** Index in the draft's text. */
  readonly index: number;
  /** Column of the terminal. */
  readonly column: number;
}

export interface DraftRow {
  readonly text: string;
  /** The places before each character of the row, and behind its last one. */
  readonly places: readonly Place[];
}

/** A draft as it is drawn. */
export interface DrawnDraft {
  readonly rows: readonly DraftRow[];
  /** Row and column of the cursor. */
  readonly cursorRow: number;
  readonly cursorColumn: number;
}

/** A tab has this width, wherever it stands. */
const TAB = '    ';
/** Most screens of a draft that are laid out: a pasted text may be megabytes long, and each key lays it out again. */
const SCREENS_LAID_OUT = 2;

/**
 * Lays out a draft in rows that fit onto the terminal: those around the cursor, where it has more. A line that fills its last row has an empty row
 * behind it for the cursor.
 */
export function drawnDraft(draft: Draft, frame: RowFrame): DrawnDraft {
  const rows = rowsAround(draft, frame);
  const cursorRow = rowOf(rows, draft.cursor);
  const first = Math.max(0, Math.min(cursorRow - Math.floor(frame.rows / 2), rows.length - frame.rows));
  return {
    rows: rows.slice(first, first + frame.rows),
    cursorRow: cursorRow - first,
    cursorColumn: columnOf(rows[cursorRow], draft.cursor),
  };
}

/** The place one row above or below the cursor, at its column or the nearest one; null: there is no such row. */
export function placeInNextRow(draft: Draft, step: -1 | 1, frame: RowFrame): number | null {
  const rows = rowsAround(draft, frame);
  const cursorRow = rowOf(rows, draft.cursor);
  const target = rows[cursorRow + step];
  if (target === undefined) return null;
  const column = columnOf(rows[cursorRow], draft.cursor);
  const behind = target.places.filter((place) => place.column <= column).at(-1);
  return (behind ?? target.places[0])?.index ?? null;
}

/** The rows of the part of the draft around its cursor that may be seen. */
function rowsAround({ text, cursor }: Draft, frame: RowFrame): DraftRow[] {
  const reach = SCREENS_LAID_OUT * frame.columns * frame.rows;
  const from = cursor <= reach ? 0 : text.lastIndexOf('\n', cursor - reach) + 1 || cursor - reach;
  const to = Math.min(text.length, cursor + reach);
  const rows: DraftRow[] = [];
  let index = from;
  for (const line of text.slice(from, to).split('\n')) {
    const prompt = index === 0 ? frame.prompt : frame.morePrompt;
    rows.push(...rowsOfLine(line, index, prompt, frame.columns));
    index += line.length + 1;
  }
  return rows;
}

function rowsOfLine(line: string, start: number, prompt: string, columns: number): DraftRow[] {
  const rows: DraftRow[] = [];
  let [text, column, index] = [prompt, stringWidth(prompt), start];
  let places: Place[] = [];
  const endRow = (): void => {
    rows.push({ text, places });
    [text, column, places] = ['', 0, []];
  };
  for (const character of characters(line)) {
    const shown = character === '\t' ? TAB : printableLine(character);
    const width = stringWidth(shown);
    if (column > 0 && column + width > columns) endRow();
    places.push({ index, column });
    text += shown;
    column += width;
    index += character.length;
  }
  if (column >= columns) endRow();
  places.push({ index, column });
  endRow();
  return rows;
}

/** The row with the place; of two, the later one, where the next character will stand. */
function rowOf(rows: readonly DraftRow[], index: number): number {
  const found = rows.findLastIndex(({ places }) => (places[0]?.index ?? Infinity) <= index);
  return Math.max(0, found);
}

function columnOf(row: DraftRow | undefined, index: number): number {
  return row?.places.find((place) => place.index >= index)?.column ?? 0;
}
