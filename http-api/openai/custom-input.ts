import { CUSTOM_INPUT } from './response-tools.js';

const BEGIN = new RegExp(`^\\s*\\{\\s*"${CUSTOM_INPUT}"\\s*:\\s*"`);
/**
 * Whole characters of a JSON string. The halves of a surrogate pair stay together, because half a character cannot be sent. Anything else,
 * as the end of the string or an escape that has not come whole, ends the match.
 */
const CHARACTERS = /(?:[^"\\]+|\\["\\/bfnrt]|\\u(?!d[89a-f])[0-9a-f]{4}|\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})*/iy;
const CONTROLS = /[\u0000-\u001f]/g;

/** Reads the input of a custom tool from the arguments of the function that stands for it, `{"input": "..."}`, while they come. */
export class CustomInput {
  private written = '';
  private at = 0;
  private text = '';

  /** Takes more of the arguments, and returns more of the input. */
  take(written: string): string {
    this.written += written;
    if (this.at === 0) {
      const begin = BEGIN.exec(this.written);
      if (begin === null) return '';
      this.at = begin[0].length;
    }
    CHARACTERS.lastIndex = this.at;
    const [characters = ''] = CHARACTERS.exec(this.written) ?? [];
    this.at += characters.length;
    // Some models write line feeds as they are.
    const escaped = characters.replace(CONTROLS, (control) => JSON.stringify(control).slice(1, -1));
    return this.add(JSON.parse(`"${escaped}"`) as string);
  }

  /** Returns the rest of the input, when the arguments have ended. Arguments of another form are the input as they are. */
  end(): string {
    const whole = inputOf(this.written);
    if (this.text === '') return this.add(whole ?? (this.at === 0 ? this.written : ''));
    return whole?.startsWith(this.text) === true ? this.add(whole.slice(this.text.length)) : '';
  }

  private add(text: string): string {
    this.text += text;
    return text;
  }
}

/** The only text in the arguments; null: there is not one. */
function inputOf(written: string): string | null {
  let given: unknown;
  try {
    given = JSON.parse(written);
  } catch {
    return null;
  }
  if (typeof given === 'string') return given;
  if (typeof given !== 'object' || given === null) return null;
  const properties = new Map(Object.entries(given as Record<string, unknown>));
  const [only] = properties.values();
  const text = properties.get(CUSTOM_INPUT) ?? (properties.size === 1 ? only : undefined);
  return typeof text === 'string' ? text : null;
}
