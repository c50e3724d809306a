import type { Value } from './values.js';

/** Variables of a part of a template. Names that it does not have are looked for in the part around it. */
export class Scope {
  private readonly variables = new Map<string, Value>();

  constructor(readonly outer: Scope | null) {}

  /** undefined: no variable has this name. */
  get(name: string): Value | undefined {
    const own = this.variables.get(name);
    return own === undefined ? this.outer?.get(name) : own;
  }

  set(name: string, value: Value): void {
    this.variables.set(name, value);
  }

  /** The part of the whole template. */
  get root(): Scope {
    return this.outer === null || this.outer.outer === null ? this : this.outer.root;
  }
}
