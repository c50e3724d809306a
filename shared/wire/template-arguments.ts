import { type ExactJson, readExactJson } from '../base/json/exact-json.js';
import { OdmoeError } from '../base/errors/odmoe-error.js';
import type { TemplateArgument } from './messages.js';

/** Most arguments of one request for the chat template, and the most bytes of their values together. */
export const TEMPLATE_ARGUMENTS_LIMIT = 32;
export const TEMPLATE_ARGUMENT_BYTES_LIMIT = 1024 * 1024;

/** Valid names of Jinja variables. */
const NAME = /^[A-Za-z_][A-Za-z0-9_]{0,63}$/;
/** Names that a template gets from other sources, so requests may not set them. */
const TAKEN: ReadonlySet<string> = new Set([
  'messages',
  'add_generation_prompt',
  'raise_exception',
  'range',
  'strftime_now',
]);
const NAME_SHOWN_LIMIT = 40;
/** The field of the request, for errors. */
const FIELD = 'template_arguments';

/** The values by name, for a chat template. @throws REQUEST_INVALID naming the argument */
export function templateValues(given: readonly TemplateArgument[]): Record<string, ExactJson> {
  if (given.length > TEMPLATE_ARGUMENTS_LIMIT) {
    throw invalid(`${given.length} template arguments were given; at most ${TEMPLATE_ARGUMENTS_LIMIT} are taken`);
  }
  const bytes = given.reduce((sum, { value }) => sum + Buffer.byteLength(value), 0);
  if (bytes > TEMPLATE_ARGUMENT_BYTES_LIMIT) {
    throw invalid(
      `template arguments of ${bytes} bytes were given; at most ${TEMPLATE_ARGUMENT_BYTES_LIMIT} are taken`,
    );
  }
  const values = new Map<string, ExactJson>();
  for (const { name, value } of given) {
    const shown = JSON.stringify(name.slice(0, NAME_SHOWN_LIMIT));
    if (!NAME.test(name)) throw invalid(`the template argument ${shown} is not the name of a variable`);
    if (TAKEN.has(name)) throw invalid(`the template argument ${shown} cannot be given: the template has it already`);
    if (values.has(name)) throw invalid(`the template argument ${shown} was given twice`);
    values.set(name, parsed(value, shown));
  }
  return Object.fromEntries(values);
}

function parsed(value: string, shown: string): ExactJson {
  try {
    return readExactJson(value);
  } catch (thrown) {
    const reason = thrown instanceof Error ? thrown.message : String(thrown);
    throw new OdmoeError('REQUEST_INVALID', `the value of the template argument ${shown} is not JSON (${reason})`, {
      cause: thrown,
      field: FIELD,
    });
  }
}

function invalid(message: string): OdmoeError {
  return new OdmoeError('REQUEST_INVALID', message, { field: FIELD });
}
