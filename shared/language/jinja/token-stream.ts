import type { Token, TokenType } from './lexer.js';

/** Most levels of nested expressions and statements in a template. The stack of a thread holds several times as many. */
const DEPTH_LIMIT = 200;

/** The tokens of a template in their order, with the checks that every part of the parser needs. */
export class TokenStream {
  private at = 0;
  private depth = 0;

  /** The last token is `eof`. */
  constructor(private readonly tokens: readonly Token[]) {}

  get current(): Token {
    return this.ahead(0);
  }

  ahead(count: number): Token {
    const token = this.tokens[Math.min(this.at + count, this.tokens.length - 1)];
    if (token === undefined) throw new SyntaxError('a template has no end');
    return token;
  }

  next(): Token {
    const token = this.current;
    this.at += 1;
    return token;
  }

  is(type: TokenType, ...values: readonly string[]): boolean {
    const { current } = this;
    return current.type === type && (values.length === 0 || values.includes(current.value));
  }

  /** Goes on if the current token is the given one. */
  takes(type: TokenType, value: string): boolean {
    if (!this.is(type, value)) return false;
    this.at += 1;
    return true;
  }

  expect(type: TokenType, value?: string): Token {
    if (!(value === undefined ? this.is(type) : this.is(type, value))) throw this.unexpected(value ?? type);
    return this.next();
  }

  unexpected(expected: string): SyntaxError {
    const { type, value, line } = this.current;
    const found = type === 'eof' ? 'the template ends' : `there is ${JSON.stringify(value.slice(0, 40))}`;
    return new SyntaxError(`expected ${expected}, but ${found} in line ${line}`);
  }

  /** Runs a part of the parser that may run within itself. */
  within<Result>(parse: () => Result): Result {
    this.depth += 1;
    if (this.depth > DEPTH_LIMIT) {
      throw new SyntaxError(`more than ${DEPTH_LIMIT} expressions or statements stand within one another`);
    }
    const result = parse();
    this.depth -= 1;
    return result;
  }
}
