import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';

/**
 * The texts that clients wrote for objects that go into prompts, and for schemas of answers. JSON.parse rounds large numbers, turns 1.0 into
 * 1, and moves keys that are digits to the front. So the text of such an object is stored beside it.
 */

/** Properties with such objects: arguments of calls, parameters of functions, schemas of answers, and variables of chat templates. */
const WITH_STORED_TEXT: ReadonlySet<string> = new Set([
  'input',
  'arguments',
  'parameters',
  'input_schema',
  'schema',
  'format',
  'chat_template_kwargs',
]);
/** A body that does not match has no such object and is not searched. Nearly every body with tools matches. */
const MAY_HOLD = new RegExp(`"(?:${[...WITH_STORED_TEXT].join('|')})"\\s*:\\s*\\{`);
/** Spaces between the parts of a JSON value. Strings are matched, too, so that their spaces stay. */
const SPACES = /("[^"\\]*(?:\\.[^"\\]*)*")|[ \t\n\r]+/g;

const texts = new WeakMap<object, string>();

/** Stores the texts of the objects in `value`, which JSON.parse made from `text`. */
export function keepWrittenJson(text: string, value: unknown): void {
  if (MAY_HOLD.test(text)) new TextKeeper(text).keep(value);
}

/** The JSON of a request's object as its client wrote it, without spaces. For any other object: JSON.stringify of it. */
export function writtenJson(value: object): string {
  const text = texts.get(value);
  return text === undefined ? JSON.stringify(value) : text.replace(SPACES, '$1');
}

/** Reads a text and the value that was parsed from it side by side. */
class TextKeeper {
  private at = 0;

  constructor(private readonly text: string) {}

  keep(value: unknown): void {
    this.space();
    const first = this.text[this.at];
    if (first === '{') this.keepProperties(value);
    else if (first === '[') this.keepItems(value);
    else this.skipScalar();
  }

  private keepProperties(value: unknown): void {
    // If keys are equal, the last one counts: the values of the others belong to no object.
    const properties = typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
    this.begin();
    while (!this.ends('}')) {
      const key = this.key();
      const property = Object.hasOwn(properties, key) ? properties[key] : undefined;
      this.space();
      this.at += 1;
      this.space();
      const start = this.at;
      this.keep(property);
      if (WITH_STORED_TEXT.has(key) && typeof property === 'object' && property !== null && this.text[start] === '{') {
        texts.set(property, this.text.slice(start, this.at));
      }
    }
  }

  private keepItems(value: unknown): void {
    const items: readonly unknown[] = Array.isArray(value) ? value : [];
    this.begin();
    for (let index = 0; !this.ends(']'); index += 1) this.keep(items[index]);
  }

  private begin(): void {
    this.at += 1;
    this.space();
  }

  /** Tells whether the list or object ends here; otherwise its next part follows. */
  private ends(end: '}' | ']'): boolean {
    this.space();
    const character = this.text[this.at];
    assertInvariant(character !== undefined, 'the text of a body is JSON, since it was parsed');
    if (character === end || character === ',') this.at += 1;
    this.space();
    return character === end;
  }

  private key(): string {
    const start = this.at;
    this.skipString();
    const written = this.text.slice(start, this.at);
    return written.includes('\\') ? (JSON.parse(written) as string) : written.slice(1, -1);
  }

  private skipScalar(): void {
    if (this.text[this.at] === '"') return this.skipString();
    SCALAR.lastIndex = this.at;
    SCALAR.test(this.text);
    this.at = SCALAR.lastIndex;
  }

  private skipString(): void {
    for (;;) {
      this.at = this.text.indexOf('"', this.at + 1);
      assertInvariant(this.at >= 0, 'the text of a body is JSON, since it was parsed');
      let backslashes = 0;
      while (this.text[this.at - 1 - backslashes] === '\\') backslashes += 1;
      if (backslashes % 2 === 0) break;
    }
    this.at += 1;
  }

  private space(): void {
    SPACE.lastIndex = this.at;
    SPACE.test(this.text);
    this.at = SPACE.lastIndex;
  }
}

const SCALAR = /[^\s,\]}]*/y;
const SPACE = /[ \t\n\r]*/y;
