import type { TemplateBudget } from './template-budget.js';
import type { Given, Value } from './values.js';

/** What filters, methods and tests need of the template that runs. */
export interface TemplateContext {
  readonly budget: TemplateBudget;
  /** The value's attribute, or else its item of that name; Undefined if it has neither. Throws TemplateError for an undefined value. */
  attribute(object: Value, name: string): Value;
  /** The value's item, or else its attribute of that name; Undefined if it has neither. Throws TemplateError for an undefined value. */
  item(object: Value, place: Value): Value;
  /** Applies the filter of that name. Throws TemplateError if there is none. */
  filter(name: string, operand: Value, given: Given): Value;
  /** Runs the test of that name. Throws TemplateError if there is none. */
  test(name: string, operand: Value, given: Given): boolean;
  hasFilter(name: string): boolean;
  hasTest(name: string): boolean;
}

/** Changes a value. Throws TemplateError if the value or the arguments do not suit it. */
export type Filter = (value: Value, given: Given, context: TemplateContext) => Value;
