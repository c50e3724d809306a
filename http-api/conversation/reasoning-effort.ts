import type { TemplateArgument } from '../../shared/wire/messages.js';

/** The variable of chat templates for the amount of reasoning. */
const EFFORT_VARIABLE = 'reasoning_effort';

/** Template arguments that set the amount of reasoning; null: the template has no such variable. `source`: the template's text. */
export function effortArguments(effort: string, source: string | null): TemplateArgument[] | null {
  if (source?.includes(EFFORT_VARIABLE) !== true) return null;
  return [{ name: EFFORT_VARIABLE, value: JSON.stringify(effort) }];
}

/**
 * The word about an effort that nobody hears; null: there is none to say. Agents send an effort to every model, so it is a hint where the template
 * has no degrees of reasoning. `field`: its place in the request.
 */
export function effortWarning(field: string, effort: string | null | undefined, source: string | null): string | null {
  const asked = effort ?? 'none';
  if (asked === 'none' || effortArguments(asked, source) !== null) return null;
  return `${field} is left out, because the model's chat template has no degrees of reasoning`;
}
