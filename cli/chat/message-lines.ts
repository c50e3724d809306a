import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** Most characters (UTF-16 units) of one message: far more than any model's context holds. */
export const MESSAGE_LENGTH_LIMIT = 8 * 1024 * 1024;

const QUOTES = '"""';

/** The text that lines form. `isVerbatim`: it is a message, never a command. */
export interface CollectedText {
  text: string;
  isVerbatim: boolean;
}

/** Joins lines: a line that ends in a backslash with the next one, and all lines between `"""` and `"""`. */
export class MessageLines {
  private readonly lines: string[] = [];
  private length = 0;
  private isQuoted = false;

  /** True: more lines are needed. */
  get isOpen(): boolean {
    return this.lines.length > 0 || this.isQuoted;
  }

  /** Returns the text that this line completes; null: more lines are needed. Throws USAGE for a text that is too long, and drops it. */
  add(line: string): CollectedText | null {
    this.length += line.length + 1;
    if (this.length > MESSAGE_LENGTH_LIMIT) {
      this.reset();
      throw new OdmoeError('USAGE', `a message has at most ${MESSAGE_LENGTH_LIMIT} characters; this one was dropped`);
    }
    if (this.isQuoted) return this.addQuoted(line);
    if (this.lines.length === 0 && line.trimStart().startsWith(QUOTES)) {
      this.isQuoted = true;
      return this.addQuoted(line.trimStart().slice(QUOTES.length));
    }
    if (line.endsWith('\\')) {
      this.lines.push(line.slice(0, -1));
      return null;
    }
    this.lines.push(line);
    return this.complete();
  }

  /** Like `add`, for pasted text. If no text is open, the pasted text is a complete message. */
  addPaste(text: string): CollectedText | null {
    const isWhole = !this.isOpen;
    this.isQuoted ||= isWhole;
    const collected = this.add(text);
    return isWhole && collected === null ? this.complete() : collected;
  }

  /** Returns the open text when no more lines come; null: there is none. */
  end(): CollectedText | null {
    return this.isOpen ? this.complete() : null;
  }

  /** Drops the open text. */
  reset(): void {
    this.lines.length = 0;
    this.length = 0;
    this.isQuoted = false;
  }

  private addQuoted(line: string): CollectedText | null {
    const isLast = line.trimEnd().endsWith(QUOTES);
    this.lines.push(isLast ? line.trimEnd().slice(0, -QUOTES.length) : line);
    return isLast ? this.complete() : null;
  }

  private complete(): CollectedText {
    const collected = { text: this.lines.join('\n').trim(), isVerbatim: this.isQuoted };
    this.reset();
    return collected;
  }
}
