import { createInterface, type Interface, type Key } from 'node:readline';
import { HISTORY_LINES_LIMIT } from './line-history.js';
import { MESSAGE_LENGTH_LIMIT } from './message-lines.js';

/** What comes from the user. */
export type TypedInput =
  | { kind: 'line'; text: string }
  /** Several lines that were pasted, and what was typed around them. */
  | { kind: 'paste'; text: string }
  /** Ctrl-C. `hadText`: there was something in the line, which is gone. */
  | { kind: 'interrupt'; hadText: boolean }
  /** Ctrl-D, or the end of a file. */
  | { kind: 'end' };

export interface LineInput {
  /** What comes next. Between two calls nothing is read, and Ctrl-C is a signal. */
  next(prompt: string): Promise<TypedInput>;
  close(): void;
}

/** Terminals mark what is pasted from the first to the second. */
const PASTE_MARKS_ON = '\u001b[?2004h';
const PASTE_MARKS_OFF = '\u001b[?2004l';
const MORE_PROMPT = '... ';

/** Lines from a terminal, with editing and history, or from a pipe. */
export class ReadlineInput implements LineInput {
  private readonly readline: Interface;
  private readonly waiting: TypedInput[] = [];
  private take: ((input: TypedInput) => void) | null = null;
  private isPasting = false;
  private pastedLines: string[] = [];
  private pastedLength = 0;

  /**
   * @param terminal the terminal to edit lines on; null: a pipe, whose lines are taken as they are
   * @param history lines of before, the oldest first
   */
  constructor(
    private readonly input: NodeJS.ReadStream,
    private readonly terminal: NodeJS.WriteStream | null,
    history: readonly string[],
  ) {
    this.readline = createInterface({
      input,
      ...(terminal !== null && { output: terminal, history: [...history].reverse(), historySize: HISTORY_LINES_LIMIT }),
      terminal: terminal !== null,
      crlfDelay: Infinity,
    });
    this.readline.on('line', (line) => this.onLine(line));
    this.readline.on('close', () => this.onEnd());
    this.readline.on('SIGINT', () => this.onInterrupt());
    input.on('keypress', this.onKey);
    this.rest();
  }

  next(prompt: string): Promise<TypedInput> {
    const [first] = this.waiting;
    if (first !== undefined) {
      // The end stays the end.
      if (first.kind !== 'end') this.waiting.shift();
      return Promise.resolve(first);
    }
    return new Promise((resolve) => {
      this.take = resolve;
      if (this.terminal === null) {
        this.readline.resume();
        return;
      }
      setRaw(this.input, true);
      this.terminal.write(PASTE_MARKS_ON);
      this.readline.setPrompt(prompt);
      this.readline.prompt();
    });
  }

  close(): void {
    this.input.off('keypress', this.onKey);
    if (this.take !== null) this.terminal?.write(PASTE_MARKS_OFF);
    this.take = null;
    this.readline.close();
  }

  private readonly onKey = (_text: string | undefined, key: Key | undefined): void => {
    if (key?.name === 'paste-start') this.isPasting = true;
    if (key?.name === 'paste-end') this.isPasting = false;
  };

  private onLine(line: string): void {
    if (this.isPasting) {
      this.pastedLength += line.length + 1;
      // A text that is too long is refused later; so much of it says that it is.
      if (this.pastedLength <= 2 * MESSAGE_LENGTH_LIMIT) this.pastedLines.push(line);
      this.readline.setPrompt(MORE_PROMPT);
      this.readline.prompt();
      return;
    }
    const lines = [...this.pastedLines, line];
    this.forgetPaste();
    this.give(lines.length === 1 ? { kind: 'line', text: line } : { kind: 'paste', text: lines.join('\n') });
  }

  private onInterrupt(): void {
    const hadText = this.readline.line !== '' || this.pastedLines.length > 0;
    this.forgetPaste();
    // To the end of the line, and delete back to its beginning.
    this.readline.write(null, { ctrl: true, name: 'e' });
    this.readline.write(null, { ctrl: true, name: 'u' });
    this.terminal?.write('^C\n');
    this.give({ kind: 'interrupt', hadText });
  }

  private onEnd(): void {
    if (this.take !== null) this.terminal?.write('\n');
    this.give({ kind: 'end' });
  }

  private forgetPaste(): void {
    this.pastedLines = [];
    this.pastedLength = 0;
  }

  /** To whoever waits, or for later: what comes in one piece has many lines, and reading stops behind it. */
  private give(input: TypedInput): void {
    const { take } = this;
    this.take = null;
    if (take === null) {
      this.waiting.push(input);
      return;
    }
    this.terminal?.write(PASTE_MARKS_OFF);
    this.rest();
    take(input);
  }

  /** Stops reading. Ctrl-C then is a signal, and what is typed meanwhile waits in the terminal. */
  private rest(): void {
    this.readline.pause();
    if (this.terminal !== null) setRaw(this.input, false);
  }
}

function setRaw(input: NodeJS.ReadStream, isRaw: boolean): void {
  if (input.isTTY) input.setRawMode(isRaw);
}
