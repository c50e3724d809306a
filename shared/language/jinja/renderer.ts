import { isTrue } from './compare.js';
import { Evaluator, passing } from './evaluator.js';
import { LoopState } from './loop-state.js';
import { macroArguments, specialNames } from './macro.js';
import type { ForNode, MacroNode, Statement, Target } from './nodes.js';
import { pythonText } from './print-python.js';
import { Scope } from './scope.js';
import { iterate, listOf, sizeOf } from './sequences.js';
import { COSTS } from './template-budget.js';
import { Callable, defined, Namespace, TemplateError, type Value } from './values.js';

/** How a statement ended: `break` and `continue` leave the statements around it. */
type Ending = 'break' | 'continue' | null;

/** Writes the text of statements. */
export class Renderer extends Evaluator {
  private output: string[] = [];

  /** The text of the statements. */
  text(body: readonly Statement[], scope: Scope): string {
    return this.collected(() => this.run(body, scope));
  }

  private run(body: readonly Statement[], scope: Scope): Ending {
    for (const statement of body) {
      this.budget.step();
      this.budget.enter();
      const ending = this.statement(statement, scope);
      this.budget.leave();
      if (ending !== null) return ending;
    }
    return null;
  }

  private write(text: string): void {
    this.budget.spend(text.length * COSTS.character);
    this.output.push(text);
  }

  private statement(node: Statement, scope: Scope): Ending {
    switch (node.type) {
      case 'text':
        this.write(node.text);
        return null;
      case 'print':
        this.write(pythonText(this.evaluate(node.value, scope), this.budget));
        return null;
      case 'if': {
        const taken = node.branches.find(([test]) => isTrue(this.evaluate(test, scope)));
        return this.run(taken === undefined ? node.otherwise : taken[1], scope);
      }
      case 'for':
        return this.loop(node, scope);
      case 'break':
      case 'continue':
        return node.type;
      case 'with':
        return this.variables(node, scope);
      case 'set':
        this.assign(node.target, this.evaluate(node.value, scope), scope);
        return null;
      case 'set-block':
      case 'filter-block': {
        const text = this.text(node.body, new Scope(scope));
        const value = node.filter === null ? text : this.filtered(node.filter, scope, text);
        if (node.type === 'set-block') this.assign(node.target, value, scope);
        else this.write(pythonText(value, this.budget));
        return null;
      }
      case 'macro':
        scope.set(node.name, this.macro(node, scope));
        return null;
      case 'call-block': {
        const callee = this.evaluate(node.call.callee, scope);
        const given = this.given(node.call.given, scope, [['caller', this.macro(node.caller, scope)]]);
        this.write(pythonText(this.call(callee, given), this.budget));
        return null;
      }
      case 'block':
        return this.run(node.body, new Scope(node.isScoped ? scope : scope.root));
      case 'refused':
        throw new TemplateError(`the tag ${node.tag} needs what a chat template does not have; leave it out`);
    }
  }

  private variables(node: Extract<Statement, { type: 'with' }>, scope: Scope): Ending {
    const inner = new Scope(scope);
    for (const [target, value] of node.pairs) this.assign(target, this.evaluate(value, scope), inner);
    return this.run(node.body, inner);
  }

  private assign(target: Target, value: Value, scope: Scope): void {
    if (target.type === 'name') scope.set(target.name, value);
    else if (target.type === 'property') {
      const namespace = scope.get(target.name);
      if (!(namespace instanceof Namespace)) throw new TemplateError('cannot assign attribute on non-namespace object');
      namespace.properties.set(target.property, value);
    } else {
      const items = listOf(value, this.budget);
      if (items.length !== target.items.length) {
        throw new TemplateError(`${target.items.length} values are needed, and ${items.length} are given`);
      }
      for (const [place, item] of target.items.entries()) this.assign(item, items[place] ?? null, scope);
    }
  }

  private loop(node: ForNode, scope: Scope): Ending {
    return this.loopOver(node, this.evaluate(node.over, scope), scope, 0);
  }

  private loopOver(node: ForNode, items: Value, scope: Scope, depth: number): Ending {
    this.budget.spend(sizeOf(items) * COSTS.turn);
    const { test } = node;
    let values = iterate(items, this.budget);
    if (test !== null) {
      values = passing(values, (item) => {
        const inner = new Scope(scope);
        this.assign(node.target, item, inner);
        return isTrue(this.evaluate(test, inner));
      });
    }
    const again = (others: Value): Value => {
      this.budget.enter();
      const text = this.collected(() => this.loopOver(node, others, scope, depth + 1));
      this.budget.leave();
      return text;
    };
    const state = new LoopState(values, depth, node.isRecursive ? again : null, this.budget);
    // As in Jinja, a loop whose body was left early each time counts as empty.
    let isEmpty = true;
    for (let item = state.next(); item !== undefined; item = state.next()) {
      this.budget.step();
      const inner = new Scope(scope);
      inner.set('loop', state);
      this.assign(node.target, item, inner);
      const ending = this.run(node.body, inner);
      if (ending === 'break') break;
      if (ending === null) isEmpty = false;
    }
    return isEmpty ? this.run(node.otherwise, new Scope(scope)) : null;
  }

  private collected(write: () => unknown): string {
    const { output } = this;
    this.output = [];
    write();
    const text = this.output.join('');
    this.output = output;
    return text;
  }

  private macro(node: MacroNode, scope: Scope): Callable {
    const special = specialNames(node);
    const { names, defaults } = node.signature;
    const printed = `<Macro '${node.name}'>`;
    return new Callable(
      node.name,
      (given) => {
        this.budget.enter();
        const inner = new Scope(scope);
        const variables = macroArguments(node, special, given);
        for (const name of names) inner.set(name, defined(variables.get(name), `parameter '${name}' was not provided`));
        for (const [name, value] of variables) inner.set(name, value);
        for (const [place, value] of defaults.entries()) {
          const name = names[names.length - defaults.length + place] ?? '';
          if (!variables.has(name)) inner.set(name, this.evaluate(value, inner));
        }
        const text = this.text(node.body, inner);
        this.budget.leave();
        return text;
      },
      printed,
    );
  }
}
