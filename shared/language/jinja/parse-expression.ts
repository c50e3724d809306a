import type { ArgumentNodes, CallNode, CompareOperator, Expression, FilterNode, MathOperator } from './nodes.js';
import type { TokenStream } from './token-stream.js';

/** Reads expressions with the priorities of Jinja, which are not all Python's: a sign binds more tightly than a power. */

const NO_NODES: ArgumentNodes = { positional: [], named: [], spread: null, namedSpread: null };
const COMPARISONS: readonly string[] = ['==', '!=', '<', '<=', '>', '>='] satisfies CompareOperator[];
const CONSTANTS: ReadonlyMap<string, boolean | null> = new Map([
  ['true', true],
  ['True', true],
  ['false', false],
  ['False', false],
  ['none', null],
  ['None', null],
]);

/** `withChoice`: `a if b else c` is taken as one expression. */
export function parseExpression(stream: TokenStream, withChoice = true): Expression {
  return stream.within(() => (withChoice ? choice(stream) : disjunction(stream)));
}

/** One expression, or several with commas between them, which are a tuple. `end`: a name that ends it. */
export function parseTuple(
  stream: TokenStream,
  {
    withChoice = true,
    isInParentheses = false,
    end = null,
  }: { withChoice?: boolean; isInParentheses?: boolean; end?: string | null } = {},
): Expression {
  const items: Expression[] = [];
  let isTuple = false;
  for (;;) {
    if (items.length > 0) stream.expect('operator', ',');
    if (isTupleEnd(stream, end)) break;
    items.push(parseExpression(stream, withChoice));
    if (!stream.is('operator', ',')) break;
    isTuple = true;
  }
  const [first] = items;
  if (!isTuple && first !== undefined) return first;
  if (!isTuple && !isInParentheses) throw stream.unexpected('an expression');
  return { type: 'tuple', items };
}

export function isTupleEnd(stream: TokenStream, end: string | null): boolean {
  return stream.is('end') || stream.is('operator', ')') || (end !== null && stream.is('name', end));
}

function choice(stream: TokenStream): Expression {
  let then = disjunction(stream);
  while (stream.takes('name', 'if')) {
    const test = disjunction(stream);
    const otherwise = stream.takes('name', 'else') ? stream.within(() => choice(stream)) : null;
    then = { type: 'choice', test, then, otherwise };
  }
  return then;
}

function disjunction(stream: TokenStream): Expression {
  let left = conjunction(stream);
  while (stream.takes('name', 'or')) left = { type: 'or', left, right: conjunction(stream) };
  return left;
}

function conjunction(stream: TokenStream): Expression {
  let left = negation(stream);
  while (stream.takes('name', 'and')) left = { type: 'and', left, right: negation(stream) };
  return left;
}

function negation(stream: TokenStream): Expression {
  if (!stream.takes('name', 'not')) return comparison(stream);
  return { type: 'not', operand: stream.within(() => negation(stream)) };
}

function comparison(stream: TokenStream): Expression {
  const first = sum(stream);
  const others: [CompareOperator, Expression][] = [];
  for (;;) {
    const operator = comparisonSign(stream);
    if (operator === null) break;
    others.push([operator, sum(stream)]);
  }
  return others.length === 0 ? first : { type: 'compare', first, others };
}

function comparisonSign(stream: TokenStream): CompareOperator | null {
  if (stream.is('operator', ...COMPARISONS)) return stream.next().value as CompareOperator;
  if (stream.takes('name', 'in')) return 'in';
  const following = stream.ahead(1);
  if (!stream.is('name', 'not') || following.type !== 'name' || following.value !== 'in') return null;
  stream.next();
  stream.next();
  return 'not in';
}

/** Operators of one priority, from left to right. */
function chain(
  stream: TokenStream,
  signs: readonly MathOperator[],
  operand: (stream: TokenStream) => Expression,
): Expression {
  let left = operand(stream);
  while (stream.is('operator', ...signs)) {
    const operator = stream.next().value as MathOperator;
    left = { type: 'math', operator, left, right: operand(stream) };
  }
  return left;
}

function sum(stream: TokenStream): Expression {
  return chain(stream, ['+', '-'], concatenation);
}

function concatenation(stream: TokenStream): Expression {
  const first = product(stream);
  if (!stream.is('operator', '~')) return first;
  const parts = [first];
  while (stream.takes('operator', '~')) parts.push(product(stream));
  return { type: 'concat', parts };
}

function product(stream: TokenStream): Expression {
  return chain(stream, ['*', '/', '//', '%'], power);
}

function power(stream: TokenStream): Expression {
  return chain(stream, ['**'], (operands) => signed(operands));
}

function signed(stream: TokenStream, withFilters = true): Expression {
  let node: Expression;
  if (stream.is('operator', '-', '+')) {
    const isNegative = stream.next().value === '-';
    node = { type: 'sign', isNegative, operand: stream.within(() => signed(stream, false)) };
  } else node = parsePrimary(stream);
  node = withPostfixes(stream, node);
  return withFilters ? withFiltersAndTests(stream, node) : node;
}

/** A name, a constant, or an expression in brackets. */
export function parsePrimary(stream: TokenStream): Expression {
  const { type, value, constant } = stream.current;
  if (type === 'name') {
    stream.next();
    const known = CONSTANTS.get(value);
    return known === undefined ? { type: 'name', name: value } : { type: 'constant', value: known };
  }
  if (type === 'number') {
    stream.next();
    return { type: 'constant', value: constant };
  }
  if (type === 'text') {
    let text = '';
    while (stream.is('text')) text += stream.next().constant as string;
    return { type: 'constant', value: text };
  }
  if (stream.takes('operator', '(')) {
    const inside = stream.within(() => parseTuple(stream, { isInParentheses: true }));
    stream.expect('operator', ')');
    return inside;
  }
  if (stream.takes('operator', '[')) return { type: 'list', items: items(stream, ']', parseExpression) };
  if (stream.takes('operator', '{')) return { type: 'dict', pairs: items(stream, '}', pair) };
  throw stream.unexpected('an expression');
}

function pair(stream: TokenStream): [Expression, Expression] {
  const key = parseExpression(stream);
  stream.expect('operator', ':');
  return [key, parseExpression(stream)];
}

function items<Item>(stream: TokenStream, end: string, item: (stream: TokenStream) => Item): Item[] {
  const found: Item[] = [];
  while (!stream.is('operator', end)) {
    if (found.length > 0) stream.expect('operator', ',');
    if (stream.is('operator', end)) break;
    found.push(item(stream));
  }
  stream.expect('operator', end);
  return found;
}

function withPostfixes(stream: TokenStream, given: Expression): Expression {
  let node = given;
  for (;;) {
    if (stream.takes('operator', '.')) node = attribute(stream, node);
    else if (stream.takes('operator', '[')) node = subscript(stream, node);
    else if (stream.is('operator', '(')) node = parseCall(stream, node);
    else return node;
  }
}

function withFiltersAndTests(stream: TokenStream, given: Expression): Expression {
  let node = given;
  for (;;) {
    if (stream.takes('operator', '|')) node = parseFilter(stream, node);
    else if (stream.takes('name', 'is')) node = test(stream, node);
    else if (stream.is('operator', '(')) node = parseCall(stream, node);
    else return node;
  }
}

function attribute(stream: TokenStream, object: Expression): Expression {
  const { type, value, constant } = stream.next();
  if (type === 'name') return { type: 'attribute', object, name: value };
  if (type === 'number' && (typeof constant === 'number' || typeof constant === 'bigint')) {
    return { type: 'item', object, place: { type: 'constant', value: constant } };
  }
  throw stream.unexpected('a name or a number after a point');
}

function subscript(stream: TokenStream, object: Expression): Expression {
  const places: Expression[] = [];
  while (!stream.is('operator', ']')) {
    if (places.length > 0) stream.expect('operator', ',');
    const place = subscribed(stream, object);
    if (place.type === 'slice' && place.object === object && places.length === 0 && stream.takes('operator', ']'))
      return place;
    places.push(place);
  }
  stream.expect('operator', ']');
  const [first] = places;
  return {
    type: 'item',
    object,
    place: first !== undefined && places.length === 1 ? first : { type: 'tuple', items: places },
  };
}

function subscribed(stream: TokenStream, object: Expression): Expression {
  const isEnd = (): boolean => stream.is('operator', ':', ']', ',');
  const start = stream.is('operator', ':') ? null : parseExpression(stream);
  if (!stream.takes('operator', ':')) return start ?? { type: 'constant', value: null };
  const stop = isEnd() ? null : parseExpression(stream);
  const step = stream.takes('operator', ':') && !isEnd() ? parseExpression(stream) : null;
  return { type: 'slice', object, start, stop, step };
}

export function parseCall(stream: TokenStream, callee: Expression): CallNode {
  return { type: 'call', callee, given: argumentNodes(stream) };
}

function argumentNodes(stream: TokenStream): ArgumentNodes {
  const { line } = stream.expect('operator', '(');
  const positional: Expression[] = [];
  const named: [string, Expression][] = [];
  let spread: Expression | null = null;
  let namedSpread: Expression | null = null;
  const ensure = (isValid: boolean): void => {
    if (!isValid) throw new SyntaxError(`the arguments of a call are out of order, in line ${line}`);
  };
  for (let isFirst = true; !stream.is('operator', ')'); isFirst = false) {
    if (!isFirst) stream.expect('operator', ',');
    if (stream.is('operator', ')')) break;
    const following = stream.ahead(1);
    if (stream.takes('operator', '*')) {
      ensure(spread === null && namedSpread === null);
      spread = parseExpression(stream);
    } else if (stream.takes('operator', '**')) {
      ensure(namedSpread === null);
      namedSpread = parseExpression(stream);
    } else if (stream.is('name') && following.type === 'operator' && following.value === '=') {
      ensure(namedSpread === null);
      const name = stream.next().value;
      stream.next();
      ensure(!named.some(([other]) => other === name));
      named.push([name, parseExpression(stream)]);
    } else {
      ensure(spread === null && namedSpread === null && named.length === 0);
      positional.push(parseExpression(stream));
    }
  }
  stream.expect('operator', ')');
  return { positional, named, spread, namedSpread };
}

/** Reads a filter after its sign. `operand`: null for the text of a block. */
export function parseFilter(stream: TokenStream, operand: Expression | null): FilterNode {
  const name = dottedName(stream);
  const given = stream.is('operator', '(') ? argumentNodes(stream) : NO_NODES;
  return { type: 'filter', operand, name, given };
}

function dottedName(stream: TokenStream): string {
  let name = stream.expect('name').value;
  while (stream.takes('operator', '.')) name += `.${stream.expect('name').value}`;
  return name;
}

function test(stream: TokenStream, operand: Expression): Expression {
  const isNegated = stream.takes('name', 'not');
  const name = dottedName(stream);
  const node: Expression = { type: 'test', operand, name, given: testArguments(stream) };
  return isNegated ? { type: 'not', operand: node } : node;
}

function testArguments(stream: TokenStream): ArgumentNodes {
  if (stream.is('operator', '(')) return argumentNodes(stream);
  const isValue = ['name', 'text', 'number'].includes(stream.current.type) || stream.is('operator', '[', '{');
  if (!isValue || stream.is('name', 'else', 'or', 'and')) return NO_NODES;
  if (stream.is('name', 'is')) throw stream.unexpected('no second test');
  return { ...NO_NODES, positional: [withPostfixes(stream, parsePrimary(stream))] };
}
