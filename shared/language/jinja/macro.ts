import type { ArgumentNodes, Expression, MacroNode, Statement, Target } from './nodes.js';
import { DEPTH_LIMIT } from './template-budget.js';
import { Dict, type Given, TemplateError, Tuple, Undefined, type Value } from './values.js';

/** Names that a macro has only if its body uses them. */
const SPECIAL_NAMES = ['caller', 'kwargs', 'varargs'] as const;
type SpecialName = (typeof SPECIAL_NAMES)[number];

/** The special names that a macro's body uses. */
export function specialNames(macro: MacroNode): ReadonlySet<SpecialName> {
  const used = usedNames(macro.body);
  return new Set(SPECIAL_NAMES.filter((name) => used.has(name) && !macro.signature.names.includes(name)));
}

/** The arguments of a macro by the names of its parameters, and by its special names; a parameter that is left out has none. */
export function macroArguments(macro: MacroNode, special: ReadonlySet<SpecialName>, given: Given): Map<string, Value> {
  const { name, signature } = macro;
  const variables = new Map<string, Value>();
  const named = new Map(given.named);
  for (const [place, parameter] of signature.names.entries()) {
    const value = place < given.positional.length ? given.positional[place] : named.get(parameter);
    if (place >= given.positional.length) named.delete(parameter);
    if (value !== undefined) variables.set(parameter, value);
  }
  if (special.has('caller')) {
    variables.set('caller', named.get('caller') ?? new Undefined('No caller defined'));
    named.delete('caller');
  }
  if (special.has('kwargs')) variables.set('kwargs', Dict.of(named));
  else for (const other of named.keys()) throw new TemplateError(`macro ${name} takes no keyword argument ${other}`);
  const more = given.positional.slice(signature.names.length);
  if (special.has('varargs')) variables.set('varargs', new Tuple(more));
  else if (more.length > 0)
    throw new TemplateError(`macro ${name} takes not more than ${signature.names.length} arguments`);
  return variables;
}

/** Names that statements read and do not set before. A name that is set once is not one of the macro's special names any more. */
function usedNames(body: readonly Statement[]): ReadonlySet<string> {
  const walk = new NameWalk();
  walk.statements(body);
  return walk.used;
}

class NameWalk {
  readonly used = new Set<string>();
  private readonly stored = new Set<string>();

  statements(body: readonly Statement[]): void {
    for (const statement of body) this.statement(statement);
  }

  private statement(node: Statement): void {
    switch (node.type) {
      case 'print':
        return this.expression(node.value);
      case 'if':
        for (const [test, body] of node.branches) {
          this.expression(test);
          this.statements(body);
        }
        return this.statements(node.otherwise);
      case 'for':
        this.target(node.target);
        this.expression(node.over);
        this.statements(node.body);
        this.statements(node.otherwise);
        return this.expression(node.test);
      case 'set':
        this.target(node.target);
        return this.expression(node.value);
      case 'set-block':
        this.target(node.target);
        this.expression(node.filter);
        return this.statements(node.body);
      case 'macro':
        return this.macro(node);
      case 'call-block':
        this.expression(node.call);
        return this.macro(node.caller);
      case 'filter-block':
        this.statements(node.body);
        return this.expression(node.filter);
      case 'with':
        for (const [target, value] of node.pairs) {
          this.target(target);
          this.expression(value);
        }
        return this.statements(node.body);
      case 'text':
      case 'block':
      case 'break':
      case 'continue':
      case 'refused':
        return undefined;
    }
  }

  private macro({ signature, body }: MacroNode): void {
    for (const name of signature.names) this.stored.add(name);
    for (const value of signature.defaults) this.expression(value);
    this.statements(body);
  }

  private target(target: Target): void {
    if (target.type === 'name') this.stored.add(target.name);
    else if (target.type === 'targets') for (const item of target.items) this.target(item);
  }

  /** Expressions that are too deep to be computed are left out. */
  private expression(node: Expression | null, depth = 0): void {
    if (node === null || depth > DEPTH_LIMIT) return;
    if (node.type === 'name' && !this.stored.has(node.name)) this.used.add(node.name);
    for (const child of childrenOf(node)) this.expression(child, depth + 1);
  }
}

function childrenOf(node: Expression): readonly (Expression | null)[] {
  switch (node.type) {
    case 'name':
    case 'constant':
      return [];
    case 'tuple':
    case 'list':
      return node.items;
    case 'dict':
      return node.pairs.flat();
    case 'choice':
      return [node.test, node.then, node.otherwise];
    case 'and':
    case 'or':
    case 'math':
      return [node.left, node.right];
    case 'not':
    case 'sign':
      return [node.operand];
    case 'compare':
      return [node.first, ...node.others.map(([, operand]) => operand)];
    case 'concat':
      return node.parts;
    case 'attribute':
      return [node.object];
    case 'item':
      return [node.object, node.place];
    case 'slice':
      return [node.object, node.start, node.stop, node.step];
    case 'call':
      return [node.callee, ...argumentsOf(node.given)];
    case 'filter':
    case 'test':
      return [node.operand, ...argumentsOf(node.given)];
  }
}

function argumentsOf({ positional, named, spread, namedSpread }: ArgumentNodes): readonly (Expression | null)[] {
  return [...positional, ...named.map(([, value]) => value), spread, namedSpread];
}
