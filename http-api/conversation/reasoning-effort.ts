import type { TemplateArgument } from '../../shared/wire/messages.js';

/** Variable of chat templates that take how much the model is to think. */
const EFFORT_VARIABLE = 'reasoning_effort';

/** What tells a chat template how much the model is to think; null: the template takes no such thing. `source`: its text. */
export function effortArguments(effort: string, source: string | null): TemplateArgument[] | null {
  if (source?.includes(EFFORT_VARIABLE) !== true) return null;
  return [{ name: EFFORT_VARIABLE, value: JSON.stringify(effort) }];
}
