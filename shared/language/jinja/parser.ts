import { tokensOf } from './lexer.js';
import type { Expression, FilterNode, ForNode, MacroNode, Signature, Statement, Target } from './nodes.js';
import { isTupleEnd, parseExpression, parseFilter, parsePrimary, parseTuple } from './parse-expression.js';
import { TokenStream } from './token-stream.js';

/** Tags that need other templates. */
const REFUSED_TAGS: ReadonlySet<string> = new Set(['extends', 'include', 'import', 'from']);

/** Reads a template. Throws SyntaxError. */
export function parseTemplate(source: string): readonly Statement[] {
  return new Parser(new TokenStream(tokensOf(source))).template();
}

class Parser {
  /** Loops around the current statement, within its function. */
  private loops = 0;
  private readonly blocks = new Set<string>();

  constructor(private readonly stream: TokenStream) {}

  template(): readonly Statement[] {
    const body = this.statements([]);
    this.stream.expect('eof');
    return body;
  }

  /** Statements up to a tag of one of the names, whose token is the current one then. */
  private statements(ends: readonly string[]): Statement[] {
    const { stream } = this;
    const found: Statement[] = [];
    while (!stream.is('eof')) {
      if (stream.is('data')) found.push({ type: 'text', text: stream.next().value });
      else if (stream.takes('begin', 'variable')) {
        found.push({ type: 'print', value: parseTuple(stream) });
        stream.expect('end', 'variable');
      } else {
        stream.expect('begin', 'block');
        if (stream.is('name', ...ends) && ends.length > 0) return found;
        found.push(...stream.within(() => this.statement()));
        stream.expect('end', 'block');
      }
    }
    if (ends.length > 0) throw stream.unexpected(ends.join(' or '));
    return found;
  }

  /** The body of a tag, up to the tag that ends it. */
  private body(end: string): Statement[] {
    const body = this.bodyUpTo([end]);
    this.stream.next();
    return body;
  }

  private bodyUpTo(ends: readonly string[]): Statement[] {
    this.stream.takes('operator', ':');
    this.stream.expect('end', 'block');
    return this.statements(ends);
  }

  /** The body of a function, which no break or continue leaves. */
  private functionBody(end: string): Statement[] {
    const { loops } = this;
    this.loops = 0;
    const body = this.body(end);
    this.loops = loops;
    return body;
  }

  private statement(): readonly Statement[] {
    const { stream } = this;
    const tag = stream.expect('name').value;
    switch (tag) {
      case 'if':
        return [this.condition()];
      case 'for':
        return [this.loop()];
      case 'set':
        return [this.assignment()];
      case 'macro':
        return [{ type: 'macro', name: this.name(), signature: this.signature(), body: this.functionBody('endmacro') }];
      case 'call':
        return [this.callBlock()];
      case 'filter':
        return [
          { type: 'filter-block', filter: this.filters(parseFilter(stream, null)), body: this.body('endfilter') },
        ];
      case 'with':
        return [this.variables()];
      case 'block':
        return [this.block()];
      case 'print':
        return this.prints();
      case 'generation':
        // transformers runs the body as a function of its own.
        return [{ type: 'with', pairs: [], body: this.functionBody('endgeneration') }];
      case 'autoescape':
        return [this.escaped()];
      case 'break':
      case 'continue':
        if (this.loops === 0) throw new SyntaxError(`${tag} stands outside a loop, in line ${stream.current.line}`);
        return [{ type: tag }];
      default:
        return [this.refused(tag)];
    }
  }

  private refused(tag: string): Statement {
    if (!REFUSED_TAGS.has(tag)) throw new SyntaxError(`unknown tag ${tag}, in line ${this.stream.current.line}`);
    while (!this.stream.is('end') && !this.stream.is('eof')) this.stream.next();
    return { type: 'refused', tag };
  }

  private condition(): Statement {
    const { stream } = this;
    const branches: [Expression, Statement[]][] = [];
    do {
      branches.push([parseTuple(stream, { withChoice: false }), this.bodyUpTo(['elif', 'else', 'endif'])]);
    } while (stream.takes('name', 'elif'));
    const otherwise = stream.next().value === 'else' ? this.body('endif') : [];
    return { type: 'if', branches, otherwise };
  }

  private loop(): ForNode {
    const { stream } = this;
    const target = this.target('in');
    stream.expect('name', 'in');
    const over = parseTuple(stream, { withChoice: false, end: 'recursive' });
    const test = stream.takes('name', 'if') ? parseExpression(stream) : null;
    const isRecursive = stream.takes('name', 'recursive');
    this.loops += 1;
    const body = this.bodyUpTo(['endfor', 'else']);
    this.loops -= 1;
    const otherwise = stream.next().value === 'else' ? this.body('endfor') : [];
    return { type: 'for', target, over, test, isRecursive, body, otherwise };
  }

  private assignment(): Statement {
    const { stream } = this;
    const target = this.target(null, true);
    if (stream.takes('operator', '=')) return { type: 'set', target, value: parseTuple(stream) };
    const filter = stream.takes('operator', '|') ? this.filters(parseFilter(stream, null)) : null;
    return { type: 'set-block', target, filter, body: this.body('endset') };
  }

  /** Further filters after the first one. */
  private filters(first: FilterNode): FilterNode {
    let filter = first;
    while (this.stream.takes('operator', '|')) filter = parseFilter(this.stream, filter);
    return filter;
  }

  private target(end: string | null, withProperties = false): Target {
    const { stream } = this;
    const items: Target[] = [];
    let isTuple = false;
    for (;;) {
      if (items.length > 0) stream.expect('operator', ',');
      if (isTupleEnd(stream, end)) break;
      items.push(stream.within(() => this.oneTarget(withProperties)));
      if (!stream.is('operator', ',')) break;
      isTuple = true;
    }
    const [first] = items;
    if (first === undefined) throw stream.unexpected('a name');
    return isTuple ? { type: 'targets', items } : first;
  }

  private oneTarget(withProperties: boolean): Target {
    const { stream } = this;
    const following = stream.ahead(1);
    if (withProperties && stream.is('name') && following.type === 'operator' && following.value === '.') {
      const name = stream.next().value;
      stream.next();
      return { type: 'property', name, property: stream.expect('name').value };
    }
    return this.asTarget(parsePrimary(stream));
  }

  private asTarget(node: Expression): Target {
    if (node.type === 'name') return node;
    if (node.type === 'tuple') return { type: 'targets', items: node.items.map((item) => this.asTarget(item)) };
    throw new SyntaxError(`nothing can be assigned to a ${node.type}, in line ${this.stream.current.line}`);
  }

  private name(): string {
    return this.stream.expect('name').value;
  }

  private signature(): Signature {
    const { stream } = this;
    const names: string[] = [];
    const defaults: Expression[] = [];
    stream.expect('operator', '(');
    while (!stream.is('operator', ')')) {
      if (names.length > 0) stream.expect('operator', ',');
      const name = this.name();
      if (names.includes(name))
        throw new SyntaxError(`two parameters are named ${name}, in line ${stream.current.line}`);
      names.push(name);
      if (stream.takes('operator', '=')) defaults.push(parseExpression(stream));
      else if (defaults.length > 0) throw stream.unexpected('a default');
    }
    stream.expect('operator', ')');
    return { names, defaults };
  }

  private callBlock(): Statement {
    const { stream } = this;
    const signature = stream.is('operator', '(') ? this.signature() : { names: [], defaults: [] };
    const call = parseExpression(stream);
    if (call.type !== 'call') throw stream.unexpected('a call');
    const caller: MacroNode = { type: 'macro', name: 'caller', signature, body: this.functionBody('endcall') };
    return { type: 'call-block', call, caller };
  }

  private variables(): Statement {
    const { stream } = this;
    const pairs: [Target, Expression][] = [];
    while (!stream.is('end')) {
      if (pairs.length > 0) stream.expect('operator', ',');
      const target = this.target(null);
      stream.expect('operator', '=');
      pairs.push([target, parseExpression(stream)]);
    }
    return { type: 'with', pairs, body: this.body('endwith') };
  }

  private block(): Statement {
    const name = this.name();
    if (this.blocks.has(name)) throw new SyntaxError(`two blocks are named ${name}`);
    this.blocks.add(name);
    const isScoped = this.stream.takes('name', 'scoped');
    this.stream.takes('name', 'required');
    const body = this.functionBody('endblock');
    this.stream.takes('name', name);
    return { type: 'block', isScoped, body };
  }

  private prints(): Statement[] {
    const found: Statement[] = [];
    while (!this.stream.is('end')) {
      if (found.length > 0) this.stream.expect('operator', ',');
      found.push({ type: 'print', value: parseExpression(this.stream) });
    }
    return found;
  }

  private escaped(): Statement {
    const value = parseExpression(this.stream);
    const body = this.body('endautoescape');
    if (value.type === 'constant' && value.value === false) return { type: 'with', pairs: [], body };
    return { type: 'refused', tag: 'autoescape' };
  }
}
