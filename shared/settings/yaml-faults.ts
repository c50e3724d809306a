/** Words for the syntax faults of a YAML file, and the places where they begin. The parser's own places are where it could not go on. */
import { CST, Parser, type YAMLParseError } from 'yaml';

export interface SyntaxFault {
  /** Characters before it. */
  offset: number;
  message: string;
}

/** Most characters of the file that a message shows. */
const SHOWN_LIMIT = 80;

const CLOSER_NAMES: Readonly<Record<string, string>> = { '[': 'flow-seq-end', '{': 'flow-map-end' };
const CLOSERS: Readonly<Record<string, string>> = { '[': ']', '{': '}' };

/** A value in quotes, or a list or mapping in brackets. */
interface Opened {
  /** The quote or bracket. */
  opener: string;
  offset: number;
  /** Characters before the place at which it ends; null: it is not closed by its own bracket. Quotes always have one. */
  endOffset: number | null;
  /** The text of a value in quotes. */
  text: string;
}

/** The fault to report of those that the parser found, of which there is at least one. */
export function syntaxFault(faults: readonly YAMLParseError[], source: string): SyntaxFault | null {
  const fault = faults.find(isOpenQuote) ?? faults[0];
  return fault === undefined ? null : (openedFault(fault, source) ?? plainFault(fault, source));
}

function isOpenQuote({ code, message }: YAMLParseError): boolean {
  return code === 'MISSING_CHAR' && message.startsWith('Missing closing ');
}

/** A fault of quotes or brackets, reported where they open; null: it is another one. */
function openedFault(fault: YAMLParseError, source: string): SyntaxFault | null {
  const [at] = fault.pos;
  const opened = openedIn(source);
  if (isOpenQuote(fault)) {
    const quote = opened.find(({ text, endOffset }) => text !== '' && endOffset === at);
    if (quote === undefined) return null;
    return {
      offset: quote.offset,
      message: `this quote (${quote.opener}) is not closed; close it where the value ends`,
    };
  }
  if (fault.message.includes('at node end')) {
    const quote = opened.find(
      ({ text, endOffset }) => text !== '' && endOffset !== null && source.slice(endOffset, at).trim() === '',
    );
    if (quote === undefined || quote.offset > at) return null;
    const message = `more text follows the value ${shown(quote.text)} in its line; close the quote (${quote.opener}) where the value ends`;
    return { offset: quote.offset, message };
  }
  const kind = /^Flow (sequence|map) /.exec(fault.message)?.[1];
  if (kind === undefined) return null;
  const opener = kind === 'map' ? '{' : '[';
  const bracket = opened.findLast((each) => each.opener === opener && each.endOffset === null && each.offset < at);
  if (bracket === undefined) return null;
  const message = `this "${opener}" is not closed; write its "${CLOSERS[opener] ?? ''}", and indent the lines up to there more than its key`;
  return { offset: bracket.offset, message };
}

/** All quotes and brackets, in the order in which they open. */
function openedIn(source: string): Opened[] {
  const found: Opened[] = [];
  const visit = (token: CST.Token | null | undefined): void => {
    if (token?.type === 'double-quoted-scalar' || token?.type === 'single-quoted-scalar') {
      const { offset, source: text } = token;
      found.push({ opener: text.charAt(0), offset, endOffset: offset + text.length, text });
    } else if (token?.type === 'flow-collection') {
      const { offset, source: opener } = token.start;
      const closer = token.end.find(({ type }) => type === CLOSER_NAMES[opener]);
      found.push({ opener, offset, endOffset: closer?.offset ?? null, text: '' });
    }
  };
  for (const token of new Parser().parse(source)) {
    if (token.type !== 'document') continue;
    CST.visit(token, ({ key, value }) => {
      visit(key);
      visit(value);
    });
  }
  return found.sort((a, b) => a.offset - b.offset);
}

/** Words by the parser's codes, for a fault at the begin of a text. Of the other codes the parser's words say what is wrong. */
const WORDS: Readonly<Partial<Record<YAMLParseError['code'], (text: string) => string>>> = {
  MULTIPLE_DOCS: () => 'a second document begins after "---"; keep one, in a file of its own',
  DUPLICATE_KEY: (text) => `${keyOf(text)}: this key stands there twice; leave one of them out`,
  TAB_AS_INDENT: () => 'a tab indents this line; indent it with spaces',
  BLOCK_AS_IMPLICIT_KEY: () =>
    'a second ": " stands in this line; put the value in quotes if it belongs to it, else begin a line',
  MULTILINE_IMPLICIT_KEY: (text) => `${shown(text)}: a ": " is missing here; write "key: value", with the space`,
  BAD_SCALAR_START: (text) => `a value cannot begin with ${text.charAt(0)}; put it in quotes`,
  BAD_DQ_ESCAPE: (text) =>
    `${text.slice(0, 2)} means nothing in double quotes; write \\\\ for each \\, or use single quotes`,
  BAD_INDENT: () =>
    'this line begins in another column than the others of its section; give all the same number of spaces',
};

function plainFault({ code, message, pos: [offset] }: YAMLParseError, source: string): SyntaxFault {
  const text = source.slice(offset);
  const bracket = code === 'UNEXPECTED_TOKEN' ? /^[\]}]/.exec(text)?.[0] : undefined;
  if (bracket !== undefined) return { offset, message: `this "${bracket}" closes nothing; take it out` };
  return { offset, message: WORDS[code]?.(text) ?? message };
}

function keyOf(text: string): string {
  return (/^[^:\n]*/.exec(text)?.[0].trim() ?? '').slice(0, SHOWN_LIMIT);
}

function shown(text: string): string {
  return (/^[^\n]*/.exec(text)?.[0] ?? '').trimEnd().slice(0, SHOWN_LIMIT);
}
