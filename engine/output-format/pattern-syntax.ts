import { formatInvalid } from '../../shared/wire/output-format.js';
import { RecentMap } from '../../shared/base/runtime/recent-map.js';
import { ANY_CODE_POINT, codePointsOf, complement, LAST_CODE_POINT, union, type CodePoints } from './code-points.js';
import {
  PATTERN_COUNT_LIMIT,
  PATTERN_DEPTH_LIMIT,
  PATTERN_LENGTH_LIMIT,
  REMEMBERED_PROPERTIES_LIMIT,
} from './format-limits.js';

/** The syntax tree of a pattern. */
export type Pattern =
  | { kind: 'character'; set: CodePoints }
  | { kind: 'sequence'; items: readonly Pattern[] }
  | { kind: 'choice'; options: readonly Pattern[] }
  | { kind: 'repeat'; body: Pattern; least: number; most: number }
  /** The text goes on with the body, or (negative) does not. */
  | { kind: 'lookahead'; body: Pattern; isNegative: boolean }
  | { kind: 'textStart' }
  | { kind: 'textEnd' };

const DIGITS: CodePoints = [[0x30, 0x39]];
const WORD: CodePoints = codePointsOf([...DIGITS, [0x41, 0x5a], [0x5f, 0x5f], [0x61, 0x7a]]);
const LINE_ENDS: CodePoints = codePointsOf([
  [0x0a, 0x0a],
  [0x0d, 0x0d],
  [0x2028, 0x2029],
]);
/** White space and line ends of ECMAScript. */
const SPACES: CodePoints = union(LINE_ENDS, [
  [0x09, 0x0d],
  [0x20, 0x20],
  [0xa0, 0xa0],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
  [0xfeff, 0xfeff],
]);
const CLASSES: Readonly<Record<string, CodePoints>> = {
  d: DIGITS,
  w: WORD,
  s: SPACES,
  D: complement(DIGITS),
  W: complement(WORD),
  S: complement(SPACES),
};
const CONTROLS: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13 };

/**
 * Reads a pattern of ECMAScript (flag u). Refuses lookbehinds, back references and \b with a message that names them. `where`: the pattern's
 * place, for messages. Throws REQUEST_INVALID.
 */
export function parsePattern(source: string, where: string): Pattern {
  if (source.length > PATTERN_LENGTH_LIMIT) {
    throw formatInvalid(`${where} has ${source.length} characters; at most ${PATTERN_LENGTH_LIMIT} are taken`);
  }
  return new PatternReader([...source], where).read();
}

class PatternReader {
  private at = 0;
  private depth = 0;
  /** Lookaheads that are open. */
  private lookaheads = 0;

  constructor(
    private readonly characters: readonly string[],
    private readonly where: string,
  ) {}

  read(): Pattern {
    const pattern = this.readChoice(false);
    if (this.at < this.characters.length) throw this.wrong('a ) without a (');
    return pattern;
  }

  /** `isAtStart`: what is read stands at the text's start, whatever the text. */
  private readChoice(isAtStart: boolean): Pattern {
    const options = [this.readSequence(isAtStart)];
    while (this.take('|')) options.push(this.readSequence(isAtStart));
    return options.length === 1 && options[0] !== undefined ? options[0] : { kind: 'choice', options };
  }

  private readSequence(beginsAtStart: boolean): Pattern {
    const items: Pattern[] = [];
    let isAtStart = beginsAtStart;
    for (let next = this.peek(); next !== undefined && next !== '|' && next !== ')'; next = this.peek()) {
      const item = this.readRepeated(isAtStart);
      isAtStart = item.kind === 'textStart' || (isAtStart && item.kind === 'lookahead');
      // In a lookahead a ^ is read only where it always holds.
      if (item.kind !== 'textStart' || this.lookaheads === 0) items.push(item);
    }
    return { kind: 'sequence', items };
  }

  private readRepeated(isAtStart: boolean): Pattern {
    const body = this.readAtom(isAtStart);
    const counts = this.readCounts();
    if (counts === null) return body;
    if (body.kind === 'textStart' || body.kind === 'textEnd') throw this.wrong('an anchor with a quantifier');
    if (body.kind === 'lookahead') throw this.wrong('a lookahead with a quantifier');
    // A lazy quantifier matches the same texts.
    this.take('?');
    return { kind: 'repeat', body, ...counts };
  }

  private readCounts(): { least: number; most: number } | null {
    if (this.take('*')) return { least: 0, most: Infinity };
    if (this.take('+')) return { least: 1, most: Infinity };
    if (this.take('?')) return { least: 0, most: 1 };
    if (!this.take('{')) return null;
    const least = this.readCount();
    if (least === null) throw this.wrong('a { that begins no {n,m}; write \\{');
    let most: number | null = least;
    if (this.take(',')) most = this.peek() === '}' ? Infinity : this.readCount();
    if (most === null || !this.take('}')) throw this.wrong('a { that begins no {n,m}; write \\{');
    if (most < least) throw this.wrong(`{${least},${most}}, which no text fulfils`);
    return { least, most };
  }

  private readCount(): number | null {
    let digits = '';
    while (/^[0-9]$/.test(this.peek() ?? '')) digits += this.next();
    if (digits === '') return null;
    if (Number(digits) > PATTERN_COUNT_LIMIT) {
      throw this.wrong(`the count ${digits.slice(0, 20)}; at most ${PATTERN_COUNT_LIMIT} is taken`);
    }
    return Number(digits);
  }

  private readAtom(isAtStart: boolean): Pattern {
    const character = this.next();
    if (character === '^') {
      if (this.lookaheads > 0 && !isAtStart) {
        throw this.wrong('a ^ in a lookahead that does not stand behind a ^, which is not supported');
      }
      return { kind: 'textStart' };
    }
    if (character === '$') return { kind: 'textEnd' };
    if (character === '(') return this.readGroup(isAtStart);
    if (character === '.') return { kind: 'character', set: complement(LINE_ENDS) };
    if (character === '[') return { kind: 'character', set: this.readClass() };
    if (character === '\\') return { kind: 'character', set: this.readEscape(false) };
    if ('*+?{'.includes(character)) throw this.wrong(`${character} with nothing before it`);
    if (character === '}' || character === ']') throw this.wrong(`a ${character} alone; write \\${character}`);
    return { kind: 'character', set: single(codePointAt(character)) };
  }

  private readGroup(isAtStart: boolean): Pattern {
    this.depth += 1;
    if (this.depth > PATTERN_DEPTH_LIMIT) throw this.wrong(`groups over ${PATTERN_DEPTH_LIMIT} deep`);
    const lookahead = this.take('?') ? this.readGroupKind() : null;
    if (lookahead !== null) this.lookaheads += 1;
    // A group may be repeated, and only its first time may be at the start.
    const body = this.readChoice(lookahead !== null && isAtStart);
    if (!this.take(')')) throw this.wrong('a ( without a )');
    this.depth -= 1;
    if (lookahead === null) return body;
    this.lookaheads -= 1;
    return { kind: 'lookahead', body, isNegative: lookahead === '!' };
  }

  /** The sign of a lookahead; null: another group. */
  private readGroupKind(): '=' | '!' | null {
    if (this.take(':')) return null;
    const kind = this.next();
    const second = this.peek() ?? '';
    if (kind === '=' || kind === '!') return kind;
    if (kind !== '<') throw this.wrong(`a group (?${kind}, which is not supported`);
    if (second === '=' || second === '!') throw this.wrong('a lookbehind, which is not supported');
    let name = '';
    while (this.peek() !== undefined && this.peek() !== '>') name += this.next();
    if (!this.take('>') || !/^[A-Za-z_$][\w$]*$/.test(name)) throw this.wrong('a group whose name is none');
    return null;
  }

  private readClass(): CodePoints {
    const isNegated = this.take('^');
    const sets: CodePoints[] = [];
    while (!this.take(']')) {
      const first = this.readClassAtom();
      if (this.peek() === '-' && this.characters[this.at + 1] !== ']') {
        this.next();
        sets.push(this.rangeOf(first, this.readClassAtom()));
      } else {
        sets.push(first);
      }
    }
    const set = union(...sets);
    return isNegated ? complement(set) : set;
  }

  private readClassAtom(): CodePoints {
    const character = this.next();
    return character === '\\' ? this.readEscape(true) : single(codePointAt(character));
  }

  private rangeOf(first: CodePoints, last: CodePoints): CodePoints {
    const [low, high] = [first[0]?.[0], last[0]?.[0]];
    const areSingle = low === first[0]?.[1] && high === last[0]?.[1] && first.length === 1 && last.length === 1;
    if (low === undefined || high === undefined || !areSingle) throw this.wrong('a range between classes');
    if (low > high) throw this.wrong('a range whose ends are the wrong way round');
    return [[low, high]];
  }

  /** Reads the rest of an escape after the backslash. */
  private readEscape(isInClass: boolean): CodePoints {
    const letter = this.next();
    const named = Object.hasOwn(CLASSES, letter) ? CLASSES[letter] : undefined;
    if (named !== undefined) return named;
    const control = Object.hasOwn(CONTROLS, letter) ? CONTROLS[letter] : undefined;
    if (control !== undefined) return single(control);
    if (letter === 'b' && isInClass) return single(8);
    if (letter === 'b' || letter === 'B') throw this.wrong(`the word boundary \\${letter}, which is not supported`);
    if (letter === 'p' || letter === 'P') return this.readProperty(letter);
    if (letter === 'k' || /^[1-9]$/.test(letter))
      throw this.wrong(`the back reference \\${letter}, which is not supported`);
    if (letter === '0') {
      if (/^[0-9]$/.test(this.peek() ?? '')) throw this.wrong('an octal escape, which is not supported');
      return single(0);
    }
    if (letter === 'x') return single(this.readHexadecimal(2));
    if (letter === 'u') return single(this.readUnicode());
    if (letter === 'c') return single(this.readControlLetter());
    if (/^[A-Za-z]$/.test(letter)) throw this.wrong(`the escape \\${letter}, which is not supported`);
    return single(codePointAt(letter));
  }

  private readProperty(letter: 'p' | 'P'): CodePoints {
    let name = '';
    if (this.take('{')) while (this.peek() !== undefined && this.peek() !== '}') name += this.next();
    const set = /^[\w=]+$/.test(name) && this.take('}') ? propertySet(name) : null;
    if (set === null) throw this.wrong(`a \\${letter} without the name of a Unicode property`);
    return letter === 'p' ? set : complement(set);
  }

  private readControlLetter(): number {
    const letter = this.next();
    if (!/^[A-Za-z]$/.test(letter)) throw this.wrong('a \\c without a letter');
    return codePointAt(letter) % 32;
  }

  /** A pair of \uXXXX for one character counts as one character. */
  private readUnicode(): number {
    if (this.take('{')) {
      let digits = '';
      while (this.peek() !== '}' && digits.length < 8) digits += this.next();
      const value = /^[0-9A-Fa-f]+$/.test(digits) ? parseInt(digits, 16) : NaN;
      if (!this.take('}') || !(value <= LAST_CODE_POINT)) throw this.wrong('a \\u{...} that is no character');
      return value;
    }
    const first = this.readHexadecimal(4);
    const isLead = first >= 0xd800 && first < 0xdc00 && this.peek() === '\\' && this.characters[this.at + 1] === 'u';
    if (!isLead) return first;
    const back = this.at;
    this.at += 2;
    const second = this.peek() === '{' ? 0 : this.readHexadecimal(4);
    if (second >= 0xdc00 && second < 0xe000) return 0x10000 + (first - 0xd800) * 0x400 + (second - 0xdc00);
    this.at = back;
    return first;
  }

  private readHexadecimal(digits: number): number {
    const text = this.characters.slice(this.at, this.at + digits).join('');
    if (text.length !== digits || !/^[0-9A-Fa-f]+$/.test(text))
      throw this.wrong('an escape whose hexadecimal digits are none');
    this.at += digits;
    return parseInt(text, 16);
  }

  private peek(): string | undefined {
    return this.characters[this.at];
  }

  private next(): string {
    const character = this.characters[this.at];
    if (character === undefined) throw this.wrong('an end where something must follow');
    this.at += 1;
    return character;
  }

  private take(character: string): boolean {
    if (this.peek() !== character) return false;
    this.at += 1;
    return true;
  }

  private wrong(what: string): Error {
    return formatInvalid(`${this.where} has ${what} (near character ${this.at})`);
  }
}

/** Sets of Unicode properties that were asked for. */
const propertySets = new RecentMap<string, CodePoints>(REMEMBERED_PROPERTIES_LIMIT);

/** The characters with a Unicode property; null: there is no such property. */
function propertySet(name: string): CodePoints | null {
  let expression: RegExp;
  try {
    expression = new RegExp(`^\\p{${name}}$`, 'u');
  } catch {
    return null;
  }
  return propertySets.of(name, () => {
    const ranges: [number, number][] = [];
    for (const [first, last] of ANY_CODE_POINT) {
      for (let codePoint = first; codePoint <= last; codePoint++) {
        if (!expression.test(String.fromCodePoint(codePoint))) continue;
        const range = ranges.at(-1);
        if (range?.[1] === codePoint - 1) range[1] = codePoint;
        else ranges.push([codePoint, codePoint]);
      }
    }
    return codePointsOf(ranges);
  });
}

function single(codePoint: number): CodePoints {
  return [[codePoint, codePoint]];
}

function codePointAt(character: string): number {
  return character.codePointAt(0) ?? 0;
}
