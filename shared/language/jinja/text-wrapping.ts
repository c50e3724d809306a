import { isSpace } from './characters.js';

/** Python's textwrap.wrap, as the filter wordwrap calls it. */

interface WrapStyle {
  /** Most characters of a line. */
  width: number;
  breaksWords: boolean;
  breaksHyphens: boolean;
}

const WORD_PART = `[\\p{L}\\p{N}_!"'&.,?]`;
const LETTER = '[\\p{L}_]';
const SPACE = '[\\t\\n\\v\\f\\r ]';
const CHUNKS = new RegExp(
  `(${SPACE}+|(?<=${WORD_PART})-{2,}(?=[\\p{L}\\p{N}_])|[^\\t\\n\\v\\f\\r ]+?(?:-(?:(?<=${LETTER}{2}-)|(?<=${LETTER}-${LETTER}-))` +
    `(?=${LETTER}-?${LETTER})|(?=${SPACE}|$)|(?<=${WORD_PART})(?=-{2,}[\\p{L}\\p{N}_])))`,
  'u',
);
const SPACES_ONLY = new RegExp(`(${SPACE}+)`, 'u');

export function wrapped(line: string, style: WrapStyle): string[] {
  if (style.width <= 0) throw new Error(`invalid width ${style.width} (must be > 0)`);
  const chunks = line
    .split(style.breaksHyphens ? CHUNKS : SPACES_ONLY)
    .filter((chunk) => chunk !== '' && chunk !== undefined);
  const lines: string[] = [];
  // The next chunk is the last one.
  chunks.reverse();
  while (chunks.length > 0) {
    if (isSpace(chunks.at(-1) ?? '') && lines.length > 0) chunks.pop();
    const parts: string[] = [];
    let length = 0;
    while (chunks.length > 0 && length + (chunks.at(-1)?.length ?? 0) <= style.width) {
      const chunk = chunks.pop() ?? '';
      parts.push(chunk);
      length += chunk.length;
    }
    if ((chunks.at(-1)?.length ?? 0) > style.width) breakWord(chunks, parts, style.width - length, style);
    if (isSpace(parts.at(-1) ?? '')) parts.pop();
    if (parts.length > 0) lines.push(parts.join(''));
  }
  return lines;
}

/** Puts the beginning of a word that is longer than a line into the rest of the current one. */
function breakWord(chunks: string[], parts: string[], room: number, { breaksWords, breaksHyphens }: WrapStyle): void {
  const chunk = chunks.pop() ?? '';
  if (!breaksWords) {
    if (parts.length === 0) parts.push(chunk);
    else chunks.push(chunk);
    return;
  }
  const hyphen = breaksHyphens && chunk.length > room ? chunk.slice(0, room).lastIndexOf('-') : -1;
  const end = hyphen > 0 && /[^-]/.test(chunk.slice(0, hyphen)) ? hyphen + 1 : room;
  parts.push(chunk.slice(0, end));
  chunks.push(chunk.slice(end));
}
