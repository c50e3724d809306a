import { globalsOf } from './globals.js';
import type { Statement } from './nodes.js';
import { parseTemplate } from './parser.js';
import { Renderer } from './renderer.js';
import { Scope } from './scope.js';
import type { TemplateBudget } from './template-budget.js';
import { templateValue } from './values.js';

/** A Jinja template with a limit on its steps, and on the values that it makes and reads. */
export class BoundedTemplate {
  private readonly parsed: readonly Statement[];

  /** Throws SyntaxError if the source is not a template. */
  constructor(source: string) {
    this.parsed = parseTemplate(source);
  }

  /**
   * Throws TemplateLimitError if the budget, which several renderings may share, is used up. Throws TemplateError if the template raises an error.
   * `variables` may hold JSON that was read without loss. `wallMs`: the time that the template sees.
   */
  render(variables: Record<string, unknown>, budget: TemplateBudget, wallMs: number): string {
    const scope = new Scope(null);
    for (const [name, value] of globalsOf(budget, wallMs)) scope.set(name, value);
    for (const [name, value] of Object.entries(variables)) scope.set(name, templateValue(value));
    return new Renderer(budget).text(this.parsed, new Scope(scope));
  }
}
