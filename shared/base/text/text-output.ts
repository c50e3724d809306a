/** The one door through which the product writes to its standard output and standard error; a test finds others. */
import { Writable } from 'node:stream';
import { printableText } from './printable-text.js';

/** What we ourselves have a terminal do. Only the marks of this file exist: no text can be one. */
class TerminalMark {
  constructor(readonly sequence: string) {}
}

export type { TerminalMark };

export const MARKS = {
  dim: new TerminalMark('\u001b[2m'),
  notDim: new TerminalMark('\u001b[22m'),
  /** Another screen, with the cursor hidden, and back. */
  enterScreen: new TerminalMark('\u001b[?1049h\u001b[?25l'),
  leaveScreen: new TerminalMark('\u001b[?25h\u001b[?1049l'),
  toTop: new TerminalMark('\u001b[H'),
  toLineBegin: new TerminalMark('\r'),
  clearLineEnd: new TerminalMark('\u001b[K'),
  clearBelow: new TerminalMark('\u001b[J'),
} as const;

export type OutputPart = string | TerminalMark;

/**
 * Standard output or standard error. Every text is cleaned on its way, whoever wrote it: it may end on a terminal by way of a pipe or a log,
 * too. Marks are for terminals and are left out elsewhere.
 */
export class TextOutput {
  /** `stream` is asked for at each use: a process may replace it. */
  constructor(private readonly stream: () => NodeJS.WriteStream) {}

  get isTerminal(): boolean {
    return this.stream().isTTY;
  }

  /** Of a terminal. */
  get size(): { columns: number; rows: number } {
    const { columns, rows } = this.stream();
    return { columns, rows };
  }

  write(...parts: OutputPart[]): void {
    const { isTerminal } = this;
    const mark = ({ sequence }: TerminalMark): string => (isTerminal ? sequence : '');
    this.stream().write(parts.map((part) => (typeof part === 'string' ? printableText(part) : mark(part))).join(''));
  }

  /** An answer of a model, which is wanted as it is: a file or a program gets each character of it, only a terminal a cleaned text. */
  writeAnswer(text: string): void {
    this.stream().write(this.isTerminal ? printableText(text) : text);
  }

  onError(listener: (error: NodeJS.ErrnoException) => void): void {
    this.stream().on('error', listener);
  }

  /** Resolves when what was written has gone; what is written to a pipe has not at first. */
  async flushed(): Promise<void> {
    await new Promise<void>((resolve) => this.stream().write('', () => resolve()));
  }

  /** For what writes lines to a stream. */
  asStream(): Writable {
    return new Writable({
      decodeStrings: false,
      write: (text: unknown, _encoding, done) => {
        this.write(String(text));
        done();
      },
    });
  }

  /** For a line editor, which writes what the user types at the keyboard. Nothing else is to be written there. */
  get keyboardEcho(): NodeJS.WriteStream {
    return this.stream();
  }
}

export const standardOutput = new TextOutput(() => process.stdout);
export const standardError = new TextOutput(() => process.stderr);
