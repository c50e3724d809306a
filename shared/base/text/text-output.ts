/** The only door through which the product writes to its standard output and standard error; a test looks for others. */
import { Writable } from 'node:stream';
import { printableText } from './printable-text.js';

/** An escape sequence that our own code sends to a terminal. Only the marks of this file exist, and no text can be one. */
class TerminalMark {
  constructor(readonly sequence: string) {}
}

export type { TerminalMark };

export const MARKS = {
  dim: new TerminalMark('\u001b[2m'),
  notDim: new TerminalMark('\u001b[22m'),
  /** Switches to another screen with the cursor hidden, and back. */
  enterScreen: new TerminalMark('\u001b[?1049h\u001b[?25l'),
  leaveScreen: new TerminalMark('\u001b[?25h\u001b[?1049l'),
  toTop: new TerminalMark('\u001b[H'),
  toLineBegin: new TerminalMark('\r'),
  clearLineEnd: new TerminalMark('\u001b[K'),
  clearBelow: new TerminalMark('\u001b[J'),
} as const;

export type TerminalText = string | TerminalMark;

/**
 * Standard output or standard error. Every text is cleaned, whichever code wrote it, because a pipe or a log may also end on a terminal. Marks
 * are for terminals and are left out elsewhere.
 */
export class TextOutput {
  private written = false;

  /** `stream` is called at each use: a process may replace its stream. */
  constructor(private readonly stream: () => NodeJS.WriteStream) {}

  /** True if something was written. */
  get hasText(): boolean {
    return this.written;
  }

  get isTerminal(): boolean {
    return this.stream().isTTY;
  }

  /** Size of the terminal. */
  get size(): { columns: number; rows: number } {
    const { columns, rows } = this.stream();
    return { columns, rows };
  }

  write(...parts: TerminalText[]): void {
    const { isTerminal } = this;
    this.written = true;
    const mark = ({ sequence }: TerminalMark): string => (isTerminal ? sequence : '');
    this.stream().write(parts.map((part) => (typeof part === 'string' ? printableText(part) : mark(part))).join(''));
  }

  /** Writes a model's answer. A file or a program gets each character unchanged; only a terminal gets a cleaned text. */
  writeAnswer(text: string): void {
    this.written = true;
    this.stream().write(this.isTerminal ? printableText(text) : text);
  }

  onError(listener: (error: NodeJS.ErrnoException) => void): void {
    this.stream().on('error', listener);
  }

  /** Resolves when everything written so far has left the process; a write to a pipe may still be pending when it returns. */
  async flushed(): Promise<void> {
    await new Promise<void>((resolve) => this.stream().write('', () => resolve()));
  }

  /** A stream for code that writes lines to a stream. */
  asStream(): Writable {
    return new Writable({
      decodeStrings: false,
      write: (text: unknown, _encoding, done) => {
        this.write(String(text));
        done();
      },
    });
  }

  /** The stream for a line editor, which echoes the user's typing. No other code may write to it. */
  get keyboardEcho(): NodeJS.WriteStream {
    return this.stream();
  }
}

export const standardOutput = new TextOutput(() => process.stdout);
export const standardError = new TextOutput(() => process.stderr);
