import type { Value } from './values.js';

/** Parts of a parsed template. */

export interface ArgumentNodes {
  readonly positional: readonly Expression[];
  readonly named: readonly (readonly [name: string, value: Expression])[];
  /** Arguments in a list: *args. */
  readonly spread: Expression | null;
  /** Arguments in a dictionary: **kwargs. */
  readonly namedSpread: Expression | null;
}

export type MathOperator = '+' | '-' | '*' | '/' | '//' | '%' | '**';
export type CompareOperator = '==' | '!=' | '<' | '<=' | '>' | '>=' | 'in' | 'not in';

export interface SliceNode {
  readonly type: 'slice';
  readonly object: Expression;
  readonly start: Expression | null;
  readonly stop: Expression | null;
  readonly step: Expression | null;
}
export interface FilterNode {
  readonly type: 'filter';
  /** null: the text of a block. */
  readonly operand: Expression | null;
  readonly name: string;
  readonly given: ArgumentNodes;
}
export interface CallNode {
  readonly type: 'call';
  readonly callee: Expression;
  readonly given: ArgumentNodes;
}
export interface NameNode {
  readonly type: 'name';
  readonly name: string;
}

export type Expression =
  | NameNode
  | SliceNode
  | FilterNode
  | CallNode
  | { readonly type: 'constant'; readonly value: Value }
  | { readonly type: 'tuple' | 'list'; readonly items: readonly Expression[] }
  | { readonly type: 'dict'; readonly pairs: readonly (readonly [key: Expression, value: Expression])[] }
  | {
      readonly type: 'choice';
      readonly test: Expression;
      readonly then: Expression;
      readonly otherwise: Expression | null;
    }
  | { readonly type: 'and' | 'or'; readonly left: Expression; readonly right: Expression }
  | { readonly type: 'not'; readonly operand: Expression }
  | {
      readonly type: 'compare';
      readonly first: Expression;
      readonly others: readonly (readonly [operator: CompareOperator, operand: Expression])[];
    }
  | { readonly type: 'math'; readonly operator: MathOperator; readonly left: Expression; readonly right: Expression }
  | { readonly type: 'concat'; readonly parts: readonly Expression[] }
  | { readonly type: 'sign'; readonly isNegative: boolean; readonly operand: Expression }
  | { readonly type: 'attribute'; readonly object: Expression; readonly name: string }
  | { readonly type: 'item'; readonly object: Expression; readonly place: Expression }
  | { readonly type: 'test'; readonly operand: Expression; readonly name: string; readonly given: ArgumentNodes };

/** A place to which a value is assigned. */
export type Target =
  | NameNode
  | { readonly type: 'property'; readonly name: string; readonly property: string }
  | { readonly type: 'targets'; readonly items: readonly Target[] };

/** Parameters of a macro. The last ones have defaults. */
export interface Signature {
  readonly names: readonly string[];
  readonly defaults: readonly Expression[];
}

export interface MacroNode {
  readonly type: 'macro';
  readonly name: string;
  readonly signature: Signature;
  readonly body: readonly Statement[];
}
export interface ForNode {
  readonly type: 'for';
  readonly target: Target;
  readonly over: Expression;
  readonly test: Expression | null;
  readonly isRecursive: boolean;
  readonly body: readonly Statement[];
  readonly otherwise: readonly Statement[];
}

export type Statement =
  | MacroNode
  | ForNode
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'print'; readonly value: Expression }
  | {
      readonly type: 'if';
      readonly branches: readonly (readonly [test: Expression, body: readonly Statement[]])[];
      readonly otherwise: readonly Statement[];
    }
  | { readonly type: 'set'; readonly target: Target; readonly value: Expression }
  | {
      readonly type: 'set-block';
      readonly target: Target;
      readonly filter: FilterNode | null;
      readonly body: readonly Statement[];
    }
  | { readonly type: 'call-block'; readonly call: CallNode; readonly caller: MacroNode }
  | { readonly type: 'filter-block'; readonly filter: FilterNode; readonly body: readonly Statement[] }
  | {
      readonly type: 'with';
      readonly pairs: readonly (readonly [target: Target, value: Expression])[];
      readonly body: readonly Statement[];
    }
  /** A block of an inherited template. It sees the variables of the whole template only, unless `isScoped`. */
  | { readonly type: 'block'; readonly isScoped: boolean; readonly body: readonly Statement[] }
  | { readonly type: 'break' | 'continue' }
  /** A statement that needs other templates. */
  | { readonly type: 'refused'; readonly tag: string };
