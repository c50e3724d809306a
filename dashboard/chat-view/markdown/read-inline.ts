import { linkAddress } from './link-address.js';
import { branch, leaf, type InlineKind, type MarkdownNode } from './markdown-node.js';
import { signsIn } from './shown-signs.js';
import { eachChild, type SyntaxCursor, type SyntaxReading } from './syntax-cursor.js';

/** Deeper emphasis is plain text: browsers do not draw elements that lie thousands deep. */
const MOST_INLINE_DEPTH = 40;

const MARKS = new Set(['EmphasisMark', 'StrikethroughMark', 'CodeMark', 'QuoteMark', 'HeaderMark', 'LinkMark']);
const WRAPPED: Partial<Record<string, InlineKind>> = {
  Emphasis: 'emphasis',
  StrongEmphasis: 'strong',
  Strikethrough: 'deleted',
  Formula: 'formula',
  SpecialToken: 'special',
};
const ENTITIES: Partial<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
  nbsp: '\u00a0',
  copy: '©',
  hellip: '…',
  mdash: '—',
  ndash: '–',
  times: '×',
  rarr: '→',
  larr: '←',
  le: '≤',
  ge: '≥',
  ne: '≠',
};

interface InlineContext {
  reading: SyntaxReading;
  cursor: SyntaxCursor;
  depth: number;
  /** Within a link: a link holds none. */
  isInLink: boolean;
}

interface Range {
  from: number;
  to: number;
}

/** The words below the cursor's node within the range (places in the reading's text). Indents of lines and marks of quotes are left out. */
export function readInline(reading: SyntaxReading, cursor: SyntaxCursor, range: Range): MarkdownNode[] {
  return inlineChildren({ reading, cursor, depth: 0, isInLink: false }, range);
}

/** Leaves for a range of plain text; `keepsIndents`: of code. */
export function textLeaves(reading: SyntaxReading, range: Range, keepsIndents: boolean): MarkdownNode[] {
  const text = reading.textOf(range);
  const { from } = reading.placeOf(range);
  const leaves: MarkdownNode[] = [];
  const add = (begin: number, end: number): void => {
    let at = begin;
    for (const sign of signsIn(text.slice(begin, end))) {
      const place = begin + sign.at;
      if (place > at) leaves.push(leaf('text', from + at, from + place));
      at = place + sign.length;
      leaves.push(leaf('sign', from + place, from + at, sign.name));
    }
    if (end > at) leaves.push(leaf('text', from + at, from + end));
  };
  let begin = 0;
  if (!keepsIndents) {
    for (const { index, 0: indent } of text.matchAll(/(?<=\n)[ \t]+/g)) {
      add(begin, index);
      begin = index + indent.length;
    }
  }
  add(begin, text.length);
  return leaves;
}

function inlineChildren(context: InlineContext, range: Range): MarkdownNode[] {
  const { reading, cursor } = context;
  const nodes: MarkdownNode[] = [];
  // The range may be the cursor, which moves.
  const { from, to: end } = range;
  let at = from;
  const addText = (to: number): void => {
    if (to > at) nodes.push(...textLeaves(reading, { from: at, to }, false));
  };
  eachChild(cursor, () => {
    if (cursor.from < at || cursor.to > end) return true;
    // The rest is plain text where the block has no room.
    if (!reading.hasRoom()) return false;
    addText(cursor.from);
    nodes.push(...inlineNode(context));
    at = cursor.to;
    if (cursor.name === 'QuoteMark') at += leadingBlanks(reading.textOf({ from: at, to: end }));
    return true;
  });
  addText(end);
  return nodes;
}

function leadingBlanks(text: string): number {
  return /^[ \t]*/.exec(text)?.[0].length ?? 0;
}

/** The nodes for the cursor's node; none for a mark. */
function inlineNode(context: InlineContext): MarkdownNode[] {
  const { reading, cursor, depth } = context;
  const { name } = cursor;
  const place = reading.placeOf(cursor);
  if (depth > MOST_INLINE_DEPTH) return textLeaves(reading, cursor, false);
  if (name === 'InlineCode') return [branch('code', place, textLeaves(reading, codeRange(context), false))];
  if (name === 'Link' || name === 'Image' || name === 'Autolink') return linkNodes(context);
  if (name === 'URL') return linked(context, place, reading.textOf(cursor), textLeaves(reading, cursor, false));
  if (name === 'Escape') return [leaf('text', place.from + 1, place.to)];
  if (name === 'HardBreak') return [leaf('text', place.to - 1, place.to)];
  if (name === 'TaskMarker') {
    return [leaf('replaced', place.from, place.to, /x/i.test(reading.textOf(cursor)) ? '☑' : '☐')];
  }
  if (name === 'Entity') return entityNodes(reading, cursor);
  if (MARKS.has(name)) return [];
  const kind = WRAPPED[name];
  // All else, HTML above all, is text.
  if (kind === undefined) return textLeaves(reading, cursor, false);
  return [branch(kind, place, inlineChildren({ ...context, depth: depth + 1 }, cursor))];
}

/** A blank at both ends, which parts the code from its marks, is no part of the code. */
function codeRange({ reading, cursor }: InlineContext): Range {
  const text = reading.textOf(cursor);
  const marks = /^`*/.exec(text)?.[0].length ?? 0;
  const inner = text.slice(marks, text.length - marks);
  const padding = /^ .* $/s.test(inner) && inner.trim() !== '' ? 1 : 0;
  return { from: cursor.from + marks + padding, to: cursor.to - marks - padding };
}

function entityNodes(reading: SyntaxReading, range: Range): MarkdownNode[] {
  const { from, to } = reading.placeOf(range);
  const name = reading.textOf(range).slice(1, -1);
  const number = /^#(?:x([\da-f]{1,6})|(\d{1,7}))$/i.exec(name);
  const code = number === null ? NaN : parseInt(number[1] ?? number[2] ?? '', number[1] === undefined ? 10 : 16);
  const isLetter = code >= 0x20 && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
  const shown = isLetter ? String.fromCodePoint(code) : ENTITIES[name];
  if (shown === undefined) return textLeaves(reading, range, false);
  const [sign] = signsIn(shown);
  return [sign === undefined ? leaf('replaced', from, to, shown) : leaf('sign', from, to, sign.name)];
}

/** A link or an image. One without an address that is allowed is shown as it was written; an image is a link to itself. */
function linkNodes(context: InlineContext): MarkdownNode[] {
  const { reading, cursor } = context;
  const place = reading.placeOf(cursor);
  const { words, address } = linkParts(context);
  if (address === null) return textLeaves(reading, cursor, false);
  const children = inlineChildren({ ...context, depth: context.depth + 1, isInLink: true }, words);
  return linked(context, place, address, children.length > 0 ? children : textLeaves(reading, cursor, false));
}

/** The range of a link's words, and its address as it was written; null: it has none, or one that is not allowed. */
function linkParts({ reading, cursor }: InlineContext): { words: Range; address: string | null } {
  const marks: Range[] = [];
  let url: Range | null = null;
  eachChild(cursor, () => {
    if (cursor.name === 'LinkMark') marks.push({ from: cursor.from, to: cursor.to });
    if (cursor.name === 'URL' && (marks.length === 3 || marks.length === 1)) url = { from: cursor.from, to: cursor.to };
    return true;
  });
  const words = { from: marks[0]?.to ?? cursor.from, to: marks[1]?.from ?? cursor.to };
  const address = url === null ? null : reading.textOf(url);
  return { words, address: address === null || linkAddress(address) === null ? null : address };
}

function linked(context: InlineContext, place: Range, written: string, words: MarkdownNode[]): MarkdownNode[] {
  const address = context.isInLink ? null : linkAddress(written);
  return address === null ? words : [branch('link', place, words, address)];
}
