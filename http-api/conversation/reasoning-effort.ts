import type { TemplateArgument } from '../../shared/wire/messages.js';

/** The variable of chat templates for the amount of reasoning. */
const EFFORT_VARIABLE = 'reasoning_effort';

/** Template arguments that set the amount of reasoning; null: the template has no such variable. `source`: the template's text. */
export function effortArguments(effort: string, source: string | null): TemplateArgument[] | null {
  if (source?.includes(EFFORT_VARIABLE) !== true) return null;
  return [{ name: EFFORT_VARIABLE, value: JSON.stringify(effort) }];
}
