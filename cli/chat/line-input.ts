import { createInterface, type Interface, type Key } from 'node:readline';
import { HISTORY_LINES_LIMIT } from './line-history.js';
import { MESSAGE_LENGTH_LIMIT } from './message-lines.js';

/** Input from the user. */
export type TypedInput =
  | { kind: 'line'; text: string }
  /** Several pasted lines, with the text that was typed around them. */
  | { kind: 'paste'; text: string }
  /** Ctrl-C. `hadText`: the line had text, which was dropped. */
  | { kind: 'interrupt'; hadText: boolean }
  /** Ctrl-D, or the end of a file. */
  | { kind: 'end' };

export interface LineInput {
  /** Returns the next input. Between two calls nothing is read, and Ctrl-C is a signal. */
  next(prompt: string): Promise<TypedInput>;
  close(): void;
}

/** The first switches paste marks of the terminal on, the second switches them off. */
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
   * @param history earlier lines, the oldest first
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
      // After the end of input, every call returns the end.
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
      // Longer text is refused later. The stored part is long enough for that.
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
    // Move to the end of the line and delete back to its beginning.
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

  /** Passes the input to the waiting caller, or stores it: one chunk may hold many lines, and reading stops after it. */
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

  /** Stops reading. Ctrl-C is then a signal, and text that is typed meanwhile stays in the terminal. */
  private rest(): void {
    this.readline.pause();
    if (this.terminal !== null) setRaw(this.input, false);
  }
}

function setRaw(input: NodeJS.ReadStream, isRaw: boolean): void {
  if (input.isTTY) input.setRawMode(isRaw);
}
