import type { Value } from './values.js';

/** Variables of a part of a template. Names that it does not have are looked for in the part around it. */
export class Scope {
  private readonly variables = new Map<string, Value>();

  constructor(readonly outer: Scope | null) {}

  /** undefined: no variable has this name. */
  get(name: string): Value | undefined {
    for (let scope: Scope | null = this; scope !== null; scope = scope.outer) {
      const value = scope.variables.get(name);
      if (value !== undefined) return value;
    }
    return undefined;
  }

  set(name: string, value: Value): void {
    this.variables.set(name, value);
  }

  /** The part of the whole template. */
  get root(): Scope {
    let scope: Scope = this;
    while (scope.outer?.outer) scope = scope.outer;
    return scope;
  }
}
