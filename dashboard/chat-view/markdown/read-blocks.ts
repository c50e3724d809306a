import { ANSWER_PARSER } from './markdown-syntax.js';
import { branch, leaf, type BlockKind, type MarkdownNode } from './markdown-node.js';
import { readInline, textLeaves } from './read-inline.js';
import { eachChild, SyntaxReading, type SyntaxCursor } from './syntax-cursor.js';

const HOLDERS: Partial<Record<string, BlockKind>> = { Blockquote: 'quote', BulletList: 'bullets', ListItem: 'item' };

/** The outer blocks of a text that lies at `offset` in its source; their places are places of the source. */
export function readMarkdown(text: string, offset: number): MarkdownNode[] {
  const reading = new SyntaxReading(text, offset);
  const cursor = ANSWER_PARSER.parse(text).cursor();
  const blocks: MarkdownNode[] = [];
  eachChild(cursor, () => {
    reading.startBlock();
    const block = readBlock(reading, cursor);
    if (block !== null) blocks.push(block);
    return true;
  });
  return blocks;
}

/** The block at the cursor; null for a mark. */
function readBlock(reading: SyntaxReading, cursor: SyntaxCursor): MarkdownNode | null {
  const place = reading.placeOf(cursor);
  const { name } = cursor;
  if (name === 'ListMark' || name === 'QuoteMark') return null;
  if (!reading.hasRoom()) return rawBlock(reading, cursor);
  if (name === 'Paragraph' || name === 'Task') return branch('paragraph', place, readInline(reading, cursor, cursor));
  if (name.includes('Heading')) return headingBlock(reading, cursor);
  if (name === 'FencedCode' || name === 'CodeBlock') return codeBlock(reading, cursor);
  if (name === 'FormulaBlock') return branch('formula-block', place, partsNamed(reading, cursor, 'FormulaText'));
  if (name === 'HorizontalRule') return leaf('rule', place.from, place.to);
  if (name === 'Table') return tableBlock(reading, cursor);
  if (name === 'OrderedList')
    return branch('numbers', place, innerBlocks(reading, cursor), firstNumber(reading, cursor));
  const holder = HOLDERS[name];
  return holder === undefined ? rawBlock(reading, cursor) : branch(holder, place, innerBlocks(reading, cursor));
}

/** The blocks of a list, an item or a quote. Where there is no room for more, the rest is one block of text. */
function innerBlocks(reading: SyntaxReading, cursor: SyntaxCursor): MarkdownNode[] {
  const blocks: MarkdownNode[] = [];
  const { to } = cursor;
  eachChild(cursor, () => {
    if (!reading.hasRoom()) {
      blocks.push(rawBlock(reading, { from: cursor.from, to }));
      return false;
    }
    const block = readBlock(reading, cursor);
    if (block !== null) blocks.push(block);
    return true;
  });
  return blocks;
}

function rawBlock(reading: SyntaxReading, range: { from: number; to: number }): MarkdownNode {
  return branch('raw', reading.placeOf(range), textLeaves(reading, range, true));
}

function headingBlock(reading: SyntaxReading, cursor: SyntaxCursor): MarkdownNode {
  const words = { from: cursor.from, to: cursor.to };
  eachChild(cursor, () => {
    if (cursor.name !== 'HeaderMark') return true;
    // Marks stand before the words, after them, or below them.
    if (cursor.from === words.from) words.from = cursor.to;
    else words.to = cursor.from;
    return true;
  });
  const text = reading.textOf(words);
  words.from += text.length - text.trimStart().length;
  words.to = Math.max(words.from, words.to - (text.length - text.trimEnd().length));
  return branch('heading', reading.placeOf(cursor), readInline(reading, cursor, words), cursor.name.slice(-1));
}

function codeBlock(reading: SyntaxReading, cursor: SyntaxCursor): MarkdownNode {
  let language = '';
  eachChild(cursor, () => {
    if (cursor.name === 'CodeInfo') language = /^[^\s,{]*/.exec(reading.textOf(cursor))?.[0] ?? '';
    return true;
  });
  return branch('code-block', reading.placeOf(cursor), partsNamed(reading, cursor, 'CodeText'), language);
}

/** The text of the cursor's children of this name. */
function partsNamed(reading: SyntaxReading, cursor: SyntaxCursor, name: string): MarkdownNode[] {
  const parts: MarkdownNode[] = [];
  eachChild(cursor, () => {
    if (cursor.name !== name) return true;
    if (reading.hasRoom()) parts.push(...textLeaves(reading, cursor, true));
    return true;
  });
  return parts;
}

/** The number of a list's first item, as it was written; "1" where it is none. */
function firstNumber(reading: SyntaxReading, cursor: SyntaxCursor): string {
  return /^\d+/.exec(reading.textOf(cursor))?.[0] ?? '1';
}

function tableBlock(reading: SyntaxReading, cursor: SyntaxCursor): MarkdownNode {
  const place = reading.placeOf(cursor);
  const rows: MarkdownNode[] = [];
  let sides: string[] = [];
  const { to } = cursor;
  eachChild(cursor, () => {
    if (!reading.hasRoom()) {
      rows.push(rawBlock(reading, { from: cursor.from, to }));
      return false;
    }
    if (cursor.name === 'TableDelimiter') sides = sidesOf(reading.textOf(cursor));
    else rows.push(branch('row', reading.placeOf(cursor), rowCells(reading, cursor)));
    return true;
  });
  const [head] = rows;
  const columns = head?.children.length ?? 0;
  const fitted = rows.map((row) => (row.kind === 'row' ? fittedRow(row, columns, sides) : row));
  return branch('table', place, fitted);
}

/** The alignments of columns from a line like `| :-- | --: |`. */
function sidesOf(line: string): string[] {
  const cells = line
    .replace(/^\s*\|/, '')
    .replace(/\|\s*$/, '')
    .split('|');
  return cells.map((cell) => {
    const text = cell.trim();
    if (text.endsWith(':')) return text.startsWith(':') ? 'center' : 'right';
    return text.startsWith(':') ? 'left' : '';
  });
}

/** The cells of a row; an empty one stands between two delimiters. */
function rowCells(reading: SyntaxReading, cursor: SyntaxCursor): MarkdownNode[] {
  const cells: MarkdownNode[] = [];
  const row = reading.placeOf(cursor);
  let cell: MarkdownNode | null = null;
  let isFirst = true;
  eachChild(cursor, () => {
    const place = reading.placeOf(cursor);
    if (!reading.hasRoom()) return false;
    if (cursor.name === 'TableCell') cell = branch('cell', place, readInline(reading, cursor, cursor));
    else if (!isFirst || cell !== null) {
      cells.push(cell ?? leaf('cell', place.from, place.from));
      cell = null;
    }
    isFirst = false;
    return true;
  });
  if (cell !== null) cells.push(cell);
  return cells.length > 0 ? cells : [leaf('cell', row.from, row.from)];
}

/** A row of at most as many cells as the head has, each with its column's alignment. */
function fittedRow(row: MarkdownNode, columns: number, sides: readonly string[]): MarkdownNode {
  const cells = row.children.slice(0, columns).map((cell, index) => ({ ...cell, detail: sides[index] ?? '' }));
  return { ...row, children: cells };
}
