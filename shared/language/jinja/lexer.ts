import { exactInteger, JsonFloat } from '../../base/json/exact-json.js';
import type { Value } from './values.js';

export type TokenType = 'data' | 'begin' | 'end' | 'name' | 'text' | 'number' | 'operator' | 'eof';

/**
 * `begin` and `end` have the value `block` or `variable`. An operator's value is its sign. Numbers and texts have their value in `constant`.
 */
export interface Token {
  readonly type: TokenType;
  readonly value: string;
  readonly constant: Value;
  readonly line: number;
}

/** White space of Python's str.isspace and of its patterns. */
export const SPACES = '\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000';
const SPACE = new RegExp(`[${SPACES}]+`, 'uy');
const ONLY_SPACE = new RegExp(`^[${SPACES}]+$`, 'u');
const ENDING_SPACE = new RegExp(`[${SPACES}]$`, 'u');
const RAW_BEGIN = new RegExp(`\\{%[-+]?[${SPACES}]*raw[${SPACES}]*(?:-%\\}[${SPACES}]*|%\\})`, 'uy');
const RAW_END = new RegExp(`\\{%([-+]?)[${SPACES}]*endraw[${SPACES}]*(?:\\+%\\}|-%\\}[${SPACES}]*|%\\}\\n?)`, 'gu');
const BLOCK_END = new RegExp(`\\+%\\}|-%\\}[${SPACES}]*|%\\}\\n?`, 'uy');
const VARIABLE_END = new RegExp(`-\\}\\}[${SPACES}]*|\\}\\}`, 'uy');
const FLOAT = /(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?[eE][+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/y;
const INTEGER = /0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0[xX](?:_?[\da-fA-F])+|[1-9](?:_?\d)*|0(?:_?0)*/y;
const NAME = /[\p{XID_Continue}]+/uy;
const IDENTIFIER = /^[\p{XID_Start}_]\p{XID_Continue}*$/u;
const TEXT = /'[^'\\]*(?:\\[^][^'\\]*)*'|"[^"\\]*(?:\\[^][^"\\]*)*"/y;
const OPERATOR = /\/\/|\*\*|==|!=|>=|<=|[-+/*%~[\](){}><=.:|,;]/y;
const CLOSING: Readonly<Record<string, string>> = { '{': '}', '(': ')', '[': ']' };

/** The tokens of a template, for trim_blocks and lstrip_blocks. Throws SyntaxError. */
export function tokensOf(source: string): Token[] {
  return new Lexer(source.replace(/\r\n?/g, '\n').replace(/\n$/, '')).tokens();
}

class Lexer {
  private readonly found: Token[] = [];
  private at = 0;
  private line = 1;
  private lineAt = 0;
  /** The last match ended with a line. */
  private isLineStart = true;

  constructor(private readonly source: string) {}

  tokens(): Token[] {
    while (this.at < this.source.length) {
      const opening = this.nextOpening();
      if (opening < 0) {
        this.add('data', this.source.slice(this.at));
        this.at = this.source.length;
      } else this.tag(opening);
    }
    this.add('eof', '');
    return this.found;
  }

  private add(type: TokenType, value: string, constant: Value = null): void {
    for (; this.lineAt < this.at; this.lineAt += 1) if (this.source[this.lineAt] === '\n') this.line += 1;
    this.found.push({ type, value, constant, line: this.line });
  }

  private nextOpening(): number {
    let opening = this.source.indexOf('{', this.at);
    while (opening >= 0 && !'{%#'.includes(this.source[opening + 1] ?? ' ')) {
      opening = this.source.indexOf('{', opening + 1);
    }
    return opening;
  }

  private match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.source);
    if (found !== null) this.at = pattern.lastIndex;
    return found;
  }

  private tag(opening: number): void {
    const kind = this.source[opening + 1];
    const sign = this.source[opening + 2] ?? '';
    this.data(this.source.slice(this.at, opening), sign, kind === '{');
    this.at = opening;
    if (kind === '%' && this.match(RAW_BEGIN) !== null) return this.raw();
    this.at = opening + (sign === '-' || sign === '+' ? 3 : 2);
    if (kind === '#') this.comment();
    else this.inside(kind === '{' ? 'variable' : 'block');
  }

  /** Adds the text before a tag. */
  private data(text: string, sign: string, isVariable: boolean): void {
    const kept = this.strippedBefore(text, sign, isVariable);
    if (kept !== '') this.add('data', kept);
  }

  private strippedBefore(text: string, sign: string, isVariable: boolean): string {
    if (sign === '-') {
      let end = text.length;
      while (end > 0 && ENDING_SPACE.test(text[end - 1] ?? '')) end -= 1;
      return text.slice(0, end);
    }
    if (sign === '+' || isVariable) return text;
    const line = text.lastIndexOf('\n') + 1;
    const isAlone = (line > 0 || this.isLineStart) && ONLY_SPACE.test(text.slice(line));
    return isAlone ? text.slice(0, line) : text;
  }

  private raw(): void {
    this.ended();
    RAW_END.lastIndex = this.at;
    const end = RAW_END.exec(this.source);
    if (end === null) throw this.fault('the end of a raw block is missing');
    this.data(this.source.slice(this.at, end.index), end[1] ?? '', false);
    this.at = RAW_END.lastIndex;
    this.ended();
  }

  private comment(): void {
    const end = this.source.indexOf('#}', this.at);
    if (end < 0) throw this.fault('the end of a comment is missing');
    const sign = end > this.at ? this.source[end - 1] : '';
    this.at = end + 2;
    if (sign === '-') this.match(SPACE);
    else if (sign !== '+' && this.source[this.at] === '\n') this.at += 1;
    this.ended();
  }

  private ended(): void {
    this.isLineStart = this.source[this.at - 1] === '\n';
  }

  /** Reads the tokens of a tag up to its end. */
  private inside(kind: 'block' | 'variable'): void {
    this.add('begin', kind);
    const end = kind === 'block' ? BLOCK_END : VARIABLE_END;
    const open: string[] = [];
    while (this.at < this.source.length) {
      if (open.length === 0 && this.match(end) !== null) {
        this.add('end', kind);
        return this.ended();
      }
      if (this.match(SPACE) === null) this.token(open);
    }
  }

  /** `open`: the brackets that have to close. */
  private token(open: string[]): void {
    const isAfterPoint = this.source[this.at - 1] === '.';
    const float = isAfterPoint ? null : this.match(FLOAT);
    if (float !== null) return this.add('number', float[0], new JsonFloat(Number(float[0].replaceAll('_', ''))));
    const integer = this.match(INTEGER);
    if (integer !== null) return this.add('number', integer[0], integerOf(integer[0].replaceAll('_', '')));
    const name = this.match(NAME);
    if (name !== null) {
      if (!IDENTIFIER.test(name[0])) throw this.fault(`${name[0]} is not a name`);
      return this.add('name', name[0]);
    }
    const text = this.match(TEXT);
    if (text !== null) return this.add('text', text[0], this.unescaped(text[0].slice(1, -1)));
    const operator = this.match(OPERATOR)?.[0];
    if (operator === undefined) throw this.fault(`unexpected character ${JSON.stringify(this.source[this.at])}`);
    const closing = CLOSING[operator];
    if (closing !== undefined) open.push(closing);
    else if ('})]'.includes(operator) && open.pop() !== operator) throw this.fault(`unexpected '${operator}'`);
    this.add('operator', operator);
  }

  /** A text literal with its escapes resolved, as in Python. */
  private unescaped(written: string): string {
    if (!written.includes('\\')) return written;
    return written.replace(
      /\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([0-7]{1,3})|([^]))/gu,
      (whole, byte?: string, unit?: string, point?: string, octal?: string, other?: string) => {
        const hex = byte ?? unit ?? point;
        const code = hex !== undefined ? parseInt(hex, 16) : parseInt(octal ?? '', 8);
        if (hex !== undefined || octal !== undefined) {
          if (code > 0x10ffff) throw this.fault(`illegal character ${whole}`);
          return String.fromCodePoint(code);
        }
        return this.escaped(other ?? '');
      },
    );
  }

  private escaped(character: string): string {
    const known = ESCAPES.get(character);
    if (known !== undefined) return known;
    if ('xuUN'.includes(character)) throw this.fault(`the escape \\${character} is incomplete or unknown`);
    const point = character.codePointAt(0) ?? 0;
    if (point < 0x80) return `\\${character}`;
    // Python first writes the character itself as an escape, whose backslash then belongs to the one before.
    const hex = point.toString(16);
    if (point < 0x100) return `\\x${hex}`;
    return point < 0x10000 ? `\\u${hex.padStart(4, '0')}` : `\\U${hex.padStart(8, '0')}`;
  }

  private fault(what: string): SyntaxError {
    this.add('eof', '');
    return new SyntaxError(`${what}, in line ${this.line}`);
  }
}

const ESCAPES: ReadonlyMap<string, string> = new Map([
  ['\n', ''],
  ['\\', '\\'],
  ["'", "'"],
  ['"', '"'],
  ['a', '\u0007'],
  ['b', '\b'],
  ['f', '\f'],
  ['n', '\n'],
  ['r', '\r'],
  ['t', '\t'],
  ['v', '\v'],
]);

/** Throws SyntaxError if there are too many digits. */
function integerOf(digits: string): number | bigint {
  if (!/^0[box]/i.test(digits)) return exactInteger(digits);
  const value = BigInt(digits.toLowerCase());
  return value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value;
}
