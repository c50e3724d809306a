import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { TemplateArgument } from '../../shared/wire/messages.js';
import type { ChatStyle } from './detect-style.js';

/** Variables by which published templates let one choose, the more usual one first. */
const SWITCHES = ['enable_thinking', 'thinking'];
/** Of models that always think, but not always for long. */
const EFFORT = 'reasoning_effort';

/** Whether a client can say that the model is to think. */
export function canThink({ variables, reasoning, harmony }: ChatStyle): boolean {
  return harmony || reasoning !== null || SWITCHES.some((name) => variables.has(name));
}

/**
 * Template variables for a choice. What the client itself has set stays. `alwaysThinks`: the template opens the reasoning, and has no
 * variable for it. @throws REQUEST_INVALID where the template cannot do it
 */
export function thinkingArguments(
  thinking: boolean | null,
  style: ChatStyle,
  given: readonly TemplateArgument[],
  alwaysThinks: boolean,
): TemplateArgument[] {
  if (thinking === null) return [];
  const names = SWITCHES.filter((name) => style.variables.has(name));
  const isGiven = (name: string): boolean => given.some((argument) => argument.name === name);
  if (names.length > 0) {
    return names.filter((name) => !isGiven(name)).map((name) => ({ name, value: String(thinking) }));
  }
  if (style.variables.has(EFFORT)) {
    return thinking || isGiven(EFFORT) ? [] : [{ name: EFFORT, value: '"low"' }];
  }
  if (thinking && !canThink(style)) {
    throw new OdmoeError('REQUEST_INVALID', 'thinking was asked for, but the model has none; leave it out', {
      field: 'thinking',
    });
  }
  if (!thinking && alwaysThinks) {
    throw new OdmoeError('REQUEST_INVALID', 'the model always thinks before it answers; leave it out to let it', {
      field: 'thinking',
    });
  }
  return [];
}
