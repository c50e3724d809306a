import { emitKeypressEvents, type Key } from 'node:readline';
import { inserted } from './draft.js';
import { MARKS } from '../../shared/base/text/text-output.js';
import { type DrawnDraft, drawnDraft, type RowFrame } from './draft-rows.js';
import { type LineInput, type TypedInput, WaitingInputs } from './line-input.js';
import { HISTORY_LINES_LIMIT } from './line-history.js';
import { MESSAGE_LENGTH_LIMIT } from './message-lines.js';
import { keyEffect, type KeyRequest, type Typing, typingOf } from './typed-keys.js';

/** The first switches paste marks of the terminal on, the second switches them off. */
const PASTE_MARKS_ON = '\u001b[?2004h';
const PASTE_MARKS_OFF = '\u001b[?2004l';
const CLEAR_SCREEN = '\u001b[H\u001b[2J';
const MORE_PROMPT = '... ';
/** For a terminal that does not tell its size, or tells 0. */
const USUAL_SIZE = { columns: 80, rows: 24 };
const LINE_ENDS = /\r\n?/g;

/** Lines that a user types on a terminal, with editing and the lines of before. */
export class TerminalInput implements LineInput {
  private readonly inputs = new WaitingInputs();
  private entries: string[];
  private typing: Typing;
  private prompt = '';
  /** Text between the paste marks of the terminal; null: nothing is being pasted. */
  private pasted: string[] | null = null;
  private pastedLength = 0;
  /** The drawing on the screen; null: none. */
  private drawn: DrawnDraft | null = null;
  /** The draft differs from the drawing. */
  private isChanged = false;

  /** @param entries lines of before, the oldest first */
  constructor(
    private readonly input: NodeJS.ReadStream,
    private readonly terminal: NodeJS.WriteStream,
    entries: readonly string[],
  ) {
    this.entries = [...entries];
    this.typing = typingOf(this.entries);
    emitKeypressEvents(input);
    input.on('keypress', this.onKey);
    // Keys of one chunk are drawn together. This listener comes after the one that reads the keys.
    input.on('data', this.draw);
    input.on('end', this.onEnd);
    terminal.on('resize', this.onResize);
    input.pause();
  }

  next(prompt: string): Promise<TypedInput> {
    const first = this.inputs.first();
    if (first !== null) return Promise.resolve(first);
    this.prompt = prompt;
    const taken = this.inputs.taken();
    this.begin();
    return taken;
  }

  close(): void {
    if (this.inputs.hasTaker) this.rest();
    this.inputs.close();
    this.input.off('keypress', this.onKey);
    this.input.off('data', this.draw);
    this.input.off('end', this.onEnd);
    this.terminal.off('resize', this.onResize);
    this.input.pause();
  }

  private get frame(): RowFrame {
    const { columns, rows } = this.terminal as Partial<typeof USUAL_SIZE>;
    const size = {
      columns: Math.max(columns || USUAL_SIZE.columns, MORE_PROMPT.length + 2),
      rows: Math.max((rows || USUAL_SIZE.rows) - 1, 1),
    };
    return { ...size, prompt: this.prompt, morePrompt: MORE_PROMPT };
  }

  /** Reads keys, and shows the draft. */
  private begin(): void {
    setRaw(this.input, true);
    this.terminal.write(PASTE_MARKS_ON);
    this.isChanged = true;
    this.draw();
    this.input.resume();
  }

  /** Stops reading. Ctrl-C is then a signal, and text that is typed meanwhile stays in the terminal. */
  private rest(): void {
    this.terminal.write(PASTE_MARKS_OFF);
    this.input.pause();
    setRaw(this.input, false);
    this.drawn = null;
  }

  private readonly onKey = (text: string | undefined, key: Key): void => {
    if (key.name === 'paste-start') this.pasted = [];
    else if (key.name === 'paste-end') this.endPaste();
    else if (this.pasted !== null) this.paste(key.sequence ?? text ?? '');
    else this.press(text ?? '', key);
  };

  private press(text: string, key: Key): void {
    const effect = keyEffect(this.typing, text, key, this.frame);
    if ('typing' in effect) {
      this.typing = effect.typing;
      this.isChanged = true;
    } else this.answer(effect.request);
  }

  private answer(request: KeyRequest): void {
    switch (request) {
      case 'send':
        return this.send();
      case 'interrupt':
        return this.interrupt();
      case 'end':
        return this.give({ kind: 'end' }, '');
      case 'redraw':
        this.terminal.write(CLEAR_SCREEN);
        this.drawn = null;
        this.isChanged = true;
        return;
      case 'suspend':
        return this.suspend();
    }
  }

  private paste(text: string): void {
    this.pastedLength += text.length;
    // Longer text is refused later. The stored part is long enough for that.
    if (this.pastedLength <= 2 * MESSAGE_LENGTH_LIMIT) this.pasted?.push(text);
  }

  private endPaste(): void {
    const text = (this.pasted ?? []).join('').replace(LINE_ENDS, '\n');
    this.pasted = null;
    this.pastedLength = 0;
    this.typing = { ...this.typing, draft: inserted(this.typing.draft, text) };
    this.isChanged = true;
  }

  private send(): void {
    const { text } = this.typing.draft;
    if (text.trim() !== '' && text !== this.entries.at(-1)) {
      this.entries = [...this.entries, text].slice(-HISTORY_LINES_LIMIT);
    }
    this.give(text.includes('\n') ? { kind: 'paste', text } : { kind: 'line', text }, '');
  }

  private interrupt(): void {
    this.give({ kind: 'interrupt', hadText: this.typing.draft.text !== '' }, '^C');
  }

  private readonly onEnd = (): void => this.give({ kind: 'end' }, '');

  /** Ends the draft on the screen, with a mark behind it, and passes the input on. */
  private give(input: TypedInput, mark: string): void {
    const { draft, removed } = this.typing;
    if (draft.cursor !== draft.text.length) {
      this.typing = { ...this.typing, draft: { ...draft, cursor: draft.text.length } };
      this.isChanged = true;
    }
    this.draw();
    if (this.inputs.hasTaker) {
      this.terminal.write(`${mark}\r\n`);
      this.rest();
    }
    this.typing = typingOf(this.entries, removed);
    this.isChanged = false;
    this.inputs.give(input);
  }

  /** Draws the draft if it has changed and somebody waits for it. */
  private readonly draw = (): void => {
    if (!this.isChanged || !this.inputs.hasTaker) return;
    this.isChanged = false;
    const next = drawnDraft(this.typing.draft, this.frame);
    const rows = next.rows.map(({ text }) => `${text}${MARKS.clearLineEnd.sequence}`).join('\r\n');
    const upwards = next.rows.length - 1 - next.cursorRow;
    this.terminal.write(
      `${toFirstRow(this.drawn)}${rows}${MARKS.clearBelow.sequence}${up(upwards)}\r${rightwards(next.cursorColumn)}`,
    );
    this.drawn = next;
  };

  private readonly onResize = (): void => {
    this.isChanged = true;
    this.draw();
  };

  /** Ctrl-Z: the shell goes on, and gives the terminal back later. */
  private suspend(): void {
    process.once('SIGCONT', () => {
      if (this.inputs.hasTaker) this.begin();
    });
    this.rest();
    this.terminal.write('\r\n');
    process.kill(process.pid, 'SIGTSTP');
  }
}

function toFirstRow(drawn: DrawnDraft | null): string {
  return `${up(drawn?.cursorRow ?? 0)}\r`;
}

function up(rows: number): string {
  return rows === 0 ? '' : `\u001b[${rows}A`;
}

function rightwards(columns: number): string {
  return columns === 0 ? '' : `\u001b[${columns}C`;
}

function setRaw(input: NodeJS.ReadStream, isRaw: boolean): void {
  if (input.isTTY) input.setRawMode(isRaw);
}
