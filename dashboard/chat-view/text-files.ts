/** Most bytes of one file, and most files at a time. */
export const FILE_BYTES_LIMIT = 250_000;
export const FILES_LIMIT = 20;
/** Most characters of a question: main counts the tokens of no longer text. */
export const QUESTION_CHARACTERS_LIMIT = 1024 * 1024;

/** A file's text, or the reason why it is not taken. */
export type ReadFile = { text: string } | { problem: string };

/** Reads the bytes as text in UTF-8, or in UTF-16 with its mark. */
export function readTextFile(name: string, bytes: Uint8Array): ReadFile {
  if (bytes.length === 0) return { problem: `${name} is empty.` };
  const [first, second] = bytes;
  const encoding =
    first === 0xff && second === 0xfe ? 'utf-16le' : first === 0xfe && second === 0xff ? 'utf-16be' : 'utf-8';
  try {
    const text = new TextDecoder(encoding, { fatal: true }).decode(bytes);
    if (!hasControlCharacters(text)) return { text };
  } catch {
    // It is no text in that encoding.
    if (isOtherText(bytes)) {
      return { problem: `${name} is not in UTF-8 or UTF-16: save it in UTF-8 by an editor, then add it again.` };
    }
  }
  return { problem: `${name} is no text: pictures, PDF and other binary files cannot be read here.` };
}

/** Texts in older encodings have control characters as few as others; binary files have some nearly always. */
function isOtherText(bytes: Uint8Array): boolean {
  return !hasControlCharacters(new TextDecoder('latin1').decode(bytes));
}

/** Texts have tabs, line ends, form feeds and colours of terminals, but no other control characters. */
function hasControlCharacters(text: string): boolean {
  return /[\0-\x08\x0e-\x1a\x1c-\x1f]/.test(text);
}

/** The file as a block of Markdown with its name. The fence is longer than any run of backticks in the text. */
export function fencedFile(name: string, text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = '`'.repeat(longest + 1);
  const language = /\.(\w{1,12})$/.exec(name)?.[1] ?? '';
  const shownName = name.replace(/[`\s\p{Cc}]+/gu, ' ').trim();
  return `File \`${shownName}\`:\n${fence}${language}\n${text}${text.endsWith('\n') ? '' : '\n'}${fence}\n`;
}

/** Text with the block in place of what is selected. Blocks begin on a line of their own. */
export function withBlock(text: string, start: number, end: number, block: string): string {
  const before = text.slice(0, start);
  const gap = before === '' || before.endsWith('\n') ? '' : '\n';
  return `${before}${gap}${block}${text.slice(end)}`;
}
