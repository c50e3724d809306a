import {
  GFM,
  parser,
  type BlockContext,
  type BlockParser,
  type InlineContext,
  type InlineParser,
  type MarkdownConfig,
} from '@lezer/markdown';

/** Deeper blocks are lines of plain text: the parser's and the page's work grow with the depth. */
const MOST_BLOCK_DEPTH = 40;
/** A longer line that lies in no code is plain text: the parser's search for a table's second line takes quadratic time. */
const MOST_LINE_CHARACTERS = 16_000;
/**
 * A paragraph whose characters times its marks are more is plain text, because a mark without an end makes the parser read the rest of the
 * paragraph. A paragraph of 2000 characters may have 1000 marks.
 */
const MOST_INLINE_WORK = 2_000_000;
const INLINE_MARKS = /[[\]<\\$*_~`!&:@]| {2}/g;

const DOLLAR = 36;
const BACKSLASH = 92;
const FULL_WIDTH_BAR = 0xff5c;
const BAR = 124;
const LESS = 60;

type Line = Parameters<NonNullable<BlockParser['parse']>>[1];

const BLOCK_LIMITS: BlockParser = {
  name: 'BlockLimits',
  before: 'IndentedCode',
  parse(context, line) {
    if (context.depth < MOST_BLOCK_DEPTH && line.text.length <= MOST_LINE_CHARACTERS) return false;
    const end = context.lineStart + line.text.length;
    context.addElement(context.elt('RawLine', context.lineStart + line.pos, end));
    context.nextLine();
    return true;
  },
  // The line before a long one ends its paragraph, too, because there the parser would look at the long one for a table.
  endLeaf: (context, line) => Math.max(line.text.length, context.peekLine().length) > MOST_LINE_CHARACTERS,
};

const INLINE_LIMITS: InlineParser = {
  name: 'InlineLimits',
  before: 'Escape',
  parse(context, _next, pos) {
    if (pos > context.offset) return -1;
    const marks = context.text.match(INLINE_MARKS)?.length ?? 0;
    return marks * context.text.length > MOST_INLINE_WORK ? context.end : -1;
  },
};

/** The end of the formula that the line begins with, as text; null: it begins with none. */
function closingOf(line: Line): string | null {
  if (line.text.startsWith('$$', line.pos)) return '$$';
  return line.text.startsWith('\\[', line.pos) ? '\\]' : null;
}

/** A formula that has lines of its own. It ends with its closing marks, at an empty line, or where its list or quote ends. */
const FORMULA_BLOCK: BlockParser = {
  name: 'FormulaBlock',
  before: 'FencedCode',
  parse(context, line) {
    const closing = closingOf(line);
    if (closing === null) return false;
    const closed = line.text.indexOf(closing, line.pos + 2);
    // A sentence that begins with a formula is a paragraph.
    if (closed >= 0 && line.text.slice(closed + 2).trim() !== '') return false;
    addFormulaBlock(context, line, closing, closed >= 0);
    return true;
  },
  endLeaf(_context, line, leaf) {
    // Marks that close a formula of the paragraph begin none.
    return closingOf(line) !== null && leaf.content.split('$$').length % 2 === 1;
  },
};

function addFormulaBlock(context: BlockContext, line: Line, closing: string, isOneLine: boolean): void {
  const from = context.lineStart + line.pos;
  const { baseIndent } = line;
  const quotes = line.markers.length;
  const parts = [context.elt('FormulaText', from, context.lineStart + line.text.length)];
  let isClosed = isOneLine;
  while (context.nextLine() && !isClosed) {
    const isLeft = line.baseIndent < baseIndent || line.markers.length < quotes;
    if (isLeft || line.pos === line.text.length) break;
    isClosed = line.text.trimEnd().endsWith(closing);
    parts.push(context.elt('FormulaText', context.lineStart - 1, context.lineStart));
    parts.push(context.elt('FormulaText', context.lineStart + line.basePos, context.lineStart + line.text.length));
  }
  context.addElement(context.elt('FormulaBlock', from, parts.at(-1)?.to ?? from, parts));
}

/** A formula within a text: `$…$`, `$$…$$`, `\(…\)` or `\[…\]`. */
const FORMULA: InlineParser = {
  name: 'Formula',
  before: 'Escape',
  parse(context, next, pos) {
    const end = next === DOLLAR ? dollarsEnd(context, pos) : next === BACKSLASH ? bracketsEnd(context, pos) : -1;
    return end < 0 ? -1 : context.addElement(context.elt('Formula', pos, end));
  },
};

function dollarsEnd(context: InlineContext, pos: number): number {
  const rest = context.slice(pos, context.end);
  if (rest.startsWith('$$')) {
    const closing = rest.indexOf('$$', 3);
    return closing < 0 ? -1 : pos + closing + 2;
  }
  // A price is no formula: blanks do not stand within the marks, nor does a digit stand behind them.
  const match = /^\$(?![\s$])(?:\\[^]|[^\\$])*?(?<!\s)\$(?!\d)/.exec(rest);
  return match === null ? -1 : pos + match[0].length;
}

function bracketsEnd(context: InlineContext, pos: number): number {
  const opening = context.slice(pos, pos + 2);
  if (opening !== '\\(' && opening !== '\\[') return -1;
  const closing = context.slice(pos, context.end).indexOf(opening === '\\(' ? '\\)' : '\\]', 2);
  return closing < 0 ? -1 : pos + closing + 2;
}

/** A special token of a model, for example `<|im_end|>`, that came as text. */
const SPECIAL_TOKEN: InlineParser = {
  name: 'SpecialToken',
  before: 'HTMLTag',
  parse(context, next, pos) {
    const second = context.char(pos + 1);
    if (next !== LESS || (second !== BAR && second !== FULL_WIDTH_BAR)) return -1;
    const match = /^<[|｜][^|｜<>\s]{1,64}[|｜]>/.exec(context.slice(pos, Math.min(context.end, pos + 80)));
    return match === null ? -1 : context.addElement(context.elt('SpecialToken', pos, pos + match[0].length));
  },
};

const ANSWER_SYNTAX: MarkdownConfig = {
  defineNodes: [
    { name: 'RawLine', block: true },
    { name: 'FormulaBlock', block: true },
    'FormulaText',
    'Formula',
    'SpecialToken',
  ],
  parseBlock: [BLOCK_LIMITS, FORMULA_BLOCK],
  parseInline: [INLINE_LIMITS, FORMULA, SPECIAL_TOKEN],
  // HTML is text, so it opens no block; a definition of a link is text, too.
  remove: ['HTMLBlock', 'LinkReference'],
};

/** CommonMark with the tables, tasks, strikes and bare links of GitHub, formulas and special tokens. */
export const ANSWER_PARSER = parser.configure([ANSWER_SYNTAX, GFM]);
