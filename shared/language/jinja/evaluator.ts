import { attributeOf, itemOf } from './attributes.js';
import { isTrue } from './compare.js';
import type { TemplateContext } from './context.js';
import { FILTERS } from './filters.js';
import type { ArgumentNodes, CallNode, Expression, FilterNode, SliceNode } from './nodes.js';
import { negated } from './numbers.js';
import { isInOrder, mathResult } from './operations.js';
import { pythonText } from './print-python.js';
import type { Scope } from './scope.js';
import { listOf, sizeOf, sliceOf } from './sequences.js';
import { COSTS, type TemplateBudget } from './template-budget.js';
import { TESTS } from './tests.js';
import {
  Callable,
  defined,
  Dict,
  Given,
  isInteger,
  NO_ARGUMENTS,
  Properties,
  TemplateError,
  textOf,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from './values.js';
import { JsonFloat } from '../../base/json/exact-json.js';

/** Computes the values of expressions. Each node takes a step of the budget, and each operation is paid for before it runs. */
export class Evaluator implements TemplateContext {
  constructor(readonly budget: TemplateBudget) {}

  evaluate(node: Expression, scope: Scope): Value {
    this.budget.step();
    if (node.type === 'constant') return node.value;
    if (node.type === 'name') return defined(scope.get(node.name), `'${node.name}' is undefined`);
    this.budget.enter();
    const value = this.valueOf(node, scope);
    this.budget.leave();
    return value;
  }

  attribute(object: Value, name: string): Value {
    return attributeOf(object, name, this);
  }

  item(object: Value, place: Value): Value {
    return itemOf(object, place, this);
  }

  filter(name: string, operand: Value, given: Given): Value {
    const filter = FILTERS.get(name);
    if (filter === undefined) throw new TemplateError(`No filter named '${name}'`);
    return filter(operand, given, this);
  }

  test(name: string, operand: Value, given: Given): boolean {
    const test = TESTS.get(name);
    if (test === undefined) throw new TemplateError(`No test named '${name}'`);
    return test(operand, given, this);
  }

  hasFilter(name: string): boolean {
    return FILTERS.has(name);
  }

  hasTest(name: string): boolean {
    return TESTS.has(name);
  }

  /** `operand`: the text of a block, for a filter whose node has none. */
  filtered(node: FilterNode, scope: Scope, operand: Value): Value {
    const inner = node.operand;
    this.budget.enter();
    const value =
      inner === null
        ? operand
        : inner.type === 'filter'
          ? this.filtered(inner, scope, operand)
          : this.evaluate(inner, scope);
    this.budget.leave();
    return this.filter(node.name, value, this.given(node.given, scope));
  }

  call(callee: Value, given: Given): Value {
    for (const value of given.positional) this.budget.read(sizeOf(value));
    for (const value of given.named.values()) this.budget.read(sizeOf(value));
    if (callee instanceof Callable) return callee.call(given);
    if (callee instanceof Properties && callee.call !== undefined) return callee.call(given);
    throw new TemplateError(callee instanceof Undefined ? callee.what : `'${typeName(callee)}' object is not callable`);
  }

  /** The arguments of a call, and after them further ones by name. */
  given(nodes: ArgumentNodes, scope: Scope, more: readonly (readonly [string, Value])[] = []): Given {
    const { positional, named, spread, namedSpread } = nodes;
    if (positional.length + named.length + more.length === 0 && spread === null && namedSpread === null)
      return NO_ARGUMENTS;
    const values = positional.map((node) => this.evaluate(node, scope));
    const byName = new Map(named.map(([name, node]) => [name, this.evaluate(node, scope)]));
    for (const [name, value] of more) byName.set(name, value);
    if (spread !== null) {
      const items = listOf(this.evaluate(spread, scope), this.budget);
      this.budget.spend(items.length * COSTS.place);
      for (const item of items) values.push(item);
    }
    if (namedSpread !== null) this.spreadNames(this.evaluate(namedSpread, scope), byName);
    return new Given(values, byName);
  }

  private spreadNames(value: Value, byName: Map<string, Value>): void {
    if (!(value instanceof Dict)) throw new TemplateError('the argument after ** must be a dictionary');
    this.budget.spend(value.size * COSTS.item);
    for (const [key, item] of value.items()) {
      const name = textOf(key);
      if (name === null) throw new TemplateError('keywords must be texts');
      if (byName.has(name)) throw new TemplateError(`a call has two values for ${name}`);
      byName.set(name, item);
    }
  }

  private valueOf(node: Exclude<Expression, { type: 'constant' | 'name' }>, scope: Scope): Value {
    switch (node.type) {
      case 'tuple':
        return new Tuple(node.items.map((item) => this.evaluate(item, scope)));
      case 'list':
        return node.items.map((item) => this.evaluate(item, scope));
      case 'dict':
        return this.dict(node.pairs, scope);
      case 'choice':
        if (isTrue(this.evaluate(node.test, scope))) return this.evaluate(node.then, scope);
        if (node.otherwise !== null) return this.evaluate(node.otherwise, scope);
        return new Undefined('the inline if-expression evaluated to false and no else section was defined');
      case 'and':
      case 'or': {
        const left = this.evaluate(node.left, scope);
        return isTrue(left) === (node.type === 'or') ? left : this.evaluate(node.right, scope);
      }
      case 'not':
        return !isTrue(this.evaluate(node.operand, scope));
      case 'compare':
        return this.compared(this.evaluate(node.first, scope), node.others, scope);
      case 'math':
        return mathResult(
          node.operator,
          this.evaluate(node.left, scope),
          this.evaluate(node.right, scope),
          this.budget,
        );
      case 'concat':
        return this.concatenated(node.parts, scope);
      case 'sign':
        return this.signed(node.isNegative, this.evaluate(node.operand, scope));
      case 'attribute':
        return this.attribute(this.evaluate(node.object, scope), node.name);
      case 'item':
        return this.item(this.evaluate(node.object, scope), this.evaluate(node.place, scope));
      case 'slice':
        return this.sliced(node, scope);
      case 'call':
        return this.called(node, scope);
      case 'filter':
        return this.filtered(node, scope, null);
      case 'test':
        return this.test(node.name, this.evaluate(node.operand, scope), this.given(node.given, scope));
    }
  }

  private dict(pairs: readonly (readonly [Expression, Expression])[], scope: Scope): Dict {
    const dict = new Dict();
    for (const [keyNode, valueNode] of pairs) {
      const [key, value] = [this.evaluate(keyNode, scope), this.evaluate(valueNode, scope)];
      this.budget.read(sizeOf(key));
      dict.set(key, value);
    }
    return dict;
  }

  private compared(first: Value, others: Extract<Expression, { type: 'compare' }>['others'], scope: Scope): boolean {
    let left = first;
    return others.every(([operator, operand]) => {
      const right = this.evaluate(operand, scope);
      const isRight = isInOrder(operator, left, right, this.budget);
      left = right;
      return isRight;
    });
  }

  private concatenated(parts: readonly Expression[], scope: Scope): string {
    const texts = parts.map((part) => pythonText(this.evaluate(part, scope), this.budget));
    return texts.reduce((whole, text) => {
      // A long text is not copied until the whole text is read.
      this.budget.spend(Math.min(whole.length, text.length) * COSTS.character);
      return whole + text;
    });
  }

  private signed(isNegative: boolean, value: Value): Value {
    if (isNegative) return negated(value);
    if (isInteger(value)) return typeof value === 'boolean' ? Number(value) : value;
    if (value instanceof JsonFloat) return value;
    throw new TemplateError(`bad operand type for a sign: '${typeName(value)}'`);
  }

  private sliced(node: SliceNode, scope: Scope): Value {
    const object = this.evaluate(node.object, scope);
    if (object instanceof Undefined) throw new TemplateError(object.what);
    const bounds = [node.start, node.stop, node.step].map((bound) =>
      bound === null ? null : this.evaluate(bound, scope),
    );
    return sliceOf(object, bounds, this.budget);
  }

  private called(node: CallNode, scope: Scope): Value {
    const callee = this.evaluate(node.callee, scope);
    return this.call(callee, this.given(node.given, scope));
  }
}

/** The items of a loop that pass its condition. */
export function passing(values: Iterator<Value>, passes: (item: Value) => boolean): Iterator<Value> {
  return {
    next: () => {
      for (let next = values.next(); ; next = values.next()) if (next.done === true || passes(next.value)) return next;
    },
  };
}
