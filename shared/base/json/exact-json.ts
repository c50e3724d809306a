/**
 * JSON as Python reads it. Numbers keep all their digits, a number with a point stays a float, and properties keep their order. JSON.parse rounds
 * large integers, makes 1.0 into 1, and moves keys that are digits to the front.
 */

/** Most levels of nested lists and objects. */
const DEPTH_LIMIT = 512;
/** Most digits of an integer, as in Python. The time to convert digits grows with the square of their number. */
const INTEGER_DIGITS_LIMIT = 4300;

/** A number that was written with a point or an exponent. */
export class JsonFloat {
  constructor(readonly value: number) {}
}

/** A value without loss. A `number` is an integer; an integer too large for it is a `bigint`. */
export type ExactJson = null | boolean | string | number | bigint | JsonFloat | ExactJson[] | Map<string, ExactJson>;

/** A property of an object, with the text of its value as it was written. */
export interface JsonProperty {
  key: string;
  text: string;
  value: ExactJson;
}

const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
const SPACE = /[ \t\n\r]*/y;
const CONTROL = /[\u0000-\u001f]/;
const WORDS: readonly [string, ExactJson][] = [
  ['null', null],
  ['true', true],
  ['false', false],
];

/** If a key occurs more than once, its last value counts, at the place of its first. Throws SyntaxError. */
export function readExactJson(text: string): ExactJson {
  return new JsonReader(text).whole();
}

/** As readExactJson, but returns null for text that is not JSON. */
export function tryExactJson(text: string): { value: ExactJson } | null {
  try {
    return { value: readExactJson(text) };
  } catch (thrown) {
    if (thrown instanceof SyntaxError) return null;
    throw thrown;
  }
}

/**
 * The properties of an object with the texts of their values; null: the text is not a JSON object. If a key occurs more than once, its last value
 * counts.
 */
export function jsonProperties(text: string): JsonProperty[] | null {
  try {
    const properties = new Map<string, JsonProperty>();
    new JsonReader(text).wholeObject((key, value, written) => properties.set(key, { key, text: written, value }));
    return [...properties.values()];
  } catch (thrown) {
    if (thrown instanceof SyntaxError) return null;
    throw thrown;
  }
}

/** Parses an integer of as many digits as Python allows. Throws SyntaxError if it has more. */
export function exactInteger(digits: string): number | bigint {
  const number = Number(digits);
  // Python integers have no negative zero.
  if (Number.isSafeInteger(number)) return number === 0 ? 0 : number;
  if (digits.length > INTEGER_DIGITS_LIMIT) {
    throw new SyntaxError(`an integer has ${digits.length} digits; at most ${INTEGER_DIGITS_LIMIT} are taken`);
  }
  return BigInt(digits);
}

class JsonReader {
  private at = 0;
  private depth = 0;

  constructor(private readonly text: string) {}

  whole(): ExactJson {
    const value = this.value();
    this.end();
    return value;
  }

  wholeObject(take: (key: string, value: ExactJson, written: string) => void): void {
    this.space();
    this.expect('{');
    this.properties(take);
    this.end();
  }

  private end(): void {
    this.space();
    if (this.at < this.text.length) throw this.fault();
  }

  private value(): ExactJson {
    this.space();
    switch (this.text[this.at]) {
      case '"':
        return this.string();
      case '{':
        return this.object();
      case '[':
        return this.list();
      case undefined:
      default:
        return this.wordOrNumber();
    }
  }

  private object(): Map<string, ExactJson> {
    const properties = new Map<string, ExactJson>();
    this.at += 1;
    this.properties((key, value) => properties.set(key, value));
    return properties;
  }

  /** Reads the rest of an object after its opening brace. */
  private properties(take: (key: string, value: ExactJson, written: string) => void): void {
    this.enter();
    this.space();
    if (this.takes('}')) return this.leave();
    do {
      this.space();
      const key = this.string();
      this.space();
      this.expect(':');
      this.space();
      const start = this.at;
      const value = this.value();
      take(key, value, this.text.slice(start, this.at));
      this.space();
    } while (this.takes(','));
    this.expect('}');
    this.leave();
  }

  private list(): ExactJson[] {
    const items: ExactJson[] = [];
    this.at += 1;
    this.enter();
    this.space();
    if (!this.takes(']')) {
      do {
        items.push(this.value());
        this.space();
      } while (this.takes(','));
      this.expect(']');
    }
    this.leave();
    return items;
  }

  private string(): string {
    const start = this.at;
    this.expect('"');
    let hasEscape = false;
    for (;;) {
      const character = this.text[this.at];
      if (character === undefined) throw this.fault();
      this.at += 1;
      if (character === '"') break;
      if (character === '\\') {
        hasEscape = true;
        this.at += 1;
      }
    }
    const written = this.text.slice(start, this.at);
    if (hasEscape) return JSON.parse(written) as string;
    if (CONTROL.test(written)) throw this.fault();
    return written.slice(1, -1);
  }

  private wordOrNumber(): ExactJson {
    NUMBER.lastIndex = this.at;
    const found = NUMBER.exec(this.text);
    if (found === null) {
      const word = WORDS.find(([name]) => this.text.startsWith(name, this.at));
      if (word === undefined) throw this.fault();
      this.at += word[0].length;
      return word[1];
    }
    const [written, fraction, exponent] = found;
    this.at += written.length;
    if (fraction !== undefined || exponent !== undefined) return new JsonFloat(Number(written));
    return exactInteger(written);
  }

  private enter(): void {
    this.depth += 1;
    if (this.depth > DEPTH_LIMIT) {
      throw new SyntaxError(`more than ${DEPTH_LIMIT} lists and objects stand within one another`);
    }
  }

  private leave(): void {
    this.depth -= 1;
  }

  private space(): void {
    SPACE.lastIndex = this.at;
    SPACE.test(this.text);
    this.at = SPACE.lastIndex;
  }

  private takes(character: string): boolean {
    if (this.text[this.at] !== character) return false;
    this.at += 1;
    return true;
  }

  private expect(character: string): void {
    if (!this.takes(character)) throw this.fault();
  }

  private fault(): SyntaxError {
    return new SyntaxError(
      this.at >= this.text.length ? 'it ends too early' : `it is wrong at its character ${this.at + 1}`,
    );
  }
}
