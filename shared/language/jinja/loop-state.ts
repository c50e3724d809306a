import { areEqual } from './compare.js';
import { COSTS, type TemplateBudget } from './template-budget.js';
import { Callable, defined, type Given, Properties, TemplateError, Tuple, type Value } from './values.js';

/** The variable `loop` of a for loop. Items are asked for one by one, as Jinja does: a loop's condition may depend on its body. */
export class LoopState extends Properties {
  readonly typeName = 'LoopContext';
  private index0 = -1;
  private current: Value | undefined;
  private previous: Value | undefined;
  /** Items that were read before the loop came to them: those from the place `aheadAt`. */
  private ahead: Value[] = [];
  private aheadAt = 0;
  private lastChanged: Value | undefined;

  /** `again`: runs the loop's body for other items; null: the loop is not recursive. */
  constructor(
    private readonly values: Iterator<Value>,
    private readonly depth0: number,
    private readonly again: ((items: Value) => Value) | null,
    private readonly budget: TemplateBudget,
  ) {
    super();
  }

  /** The next item; undefined: there is none. */
  next(): Value | undefined {
    const item = this.peek();
    if (item === undefined) return undefined;
    this.aheadAt += 1;
    this.previous = this.current;
    this.current = item;
    this.index0 += 1;
    return item;
  }

  override call(given: Given): Value {
    if (this.again === null) throw new TemplateError("the loop must have the word 'recursive' to be called");
    const [items = null] = given.bound('loop', ['iterable'], 1);
    return this.again(items);
  }

  property(name: string): Value | undefined {
    switch (name) {
      case 'index0':
        return this.index0;
      case 'index':
        return this.index0 + 1;
      case 'depth0':
        return this.depth0;
      case 'depth':
        return this.depth0 + 1;
      case 'first':
        return this.index0 === 0;
      case 'last':
        return this.peek() === undefined;
      case 'length':
        return this.length();
      case 'revindex':
        return this.length() - this.index0;
      case 'revindex0':
        return this.length() - this.index0 - 1;
      case 'previtem':
        return defined(this.previous, 'there is no previous item');
      case 'nextitem':
        return defined(this.peek(), 'there is no next item');
      case 'cycle':
        return new Callable(name, (given) => this.cycle(given));
      case 'changed':
        return new Callable(name, (given) => this.changed(given));
      default:
        return undefined;
    }
  }

  printed(): string {
    return `<LoopContext ${this.index0 + 1}/${this.length()}>`;
  }

  private peek(): Value | undefined {
    if (this.aheadAt === this.ahead.length) {
      this.ahead = [];
      this.aheadAt = 0;
      this.readOne();
    }
    return this.ahead[this.aheadAt];
  }

  private readOne(): boolean {
    const next = this.values.next();
    if (next.done === true) return false;
    this.ahead.push(next.value);
    return true;
  }

  private length(): number {
    while (this.readOne()) this.budget.spend(COSTS.place);
    return this.index0 + 1 + this.ahead.length - this.aheadAt;
  }

  private cycle(given: Given): Value {
    const items = given.unnamed('cycle', 0, Infinity);
    const item = items[this.index0 % items.length];
    if (item === undefined) throw new TemplateError('no items for cycling given');
    return item;
  }

  private changed(given: Given): Value {
    const values = new Tuple(given.unnamed('changed', 0, Infinity));
    const isSame = this.lastChanged !== undefined && areEqual(this.lastChanged, values, this.budget);
    this.lastChanged = values;
    return !isSame;
  }
}
