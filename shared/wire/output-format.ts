import { OdmoeError } from '../base/errors/odmoe-error.js';
import type { OutputFormat, OutputPart } from './messages.js';

/** The request field that an error about the format names. */
export const FORMAT_FIELD = 'sampling.output_format';

/** Most alternatives, and most parts of all alternatives together, of one output format. */
export const ALTERNATIVES_LIMIT = 1024;
export const PARTS_LIMIT = 1024;
/** Longest `without`, in characters. */
export const WITHOUT_LIMIT = 64;
/** Longest literal or until, in UTF-16 units, and most units in all texts of a format: as many as the bytes of a schema. */
export const PART_TEXT_LIMIT = 16 * 1024;
export const FORMAT_TEXT_LIMIT = 1024 * 1024;

/** Checks the bounds that a format must keep before it is compiled. Throws REQUEST_INVALID. */
export function requireFormatBounds({ alternatives }: OutputFormat): void {
  if (alternatives.length === 0) throw formatInvalid('the output format has no alternatives; give one at least');
  if (alternatives.length > ALTERNATIVES_LIMIT)
    throw tooLarge(`the output format has over ${ALTERNATIVES_LIMIT} alternatives`);
  const parts = alternatives.flatMap((alternative) => alternative.parts);
  if (parts.length > PARTS_LIMIT) throw tooLarge(`the output format has over ${PARTS_LIMIT} parts`);
  if (parts.reduce((sum, part) => sum + partText(part).length, 0) > FORMAT_TEXT_LIMIT) {
    throw tooLarge(`the texts of the output format have over ${FORMAT_TEXT_LIMIT} characters`);
  }
  for (const part of parts) requirePart(part);
}

function requirePart(part: OutputPart): void {
  const text = partText(part);
  const isSchema = part.kind === 'jsonSchema' || part.kind === 'schemaText';
  if (!isSchema && text.length > PART_TEXT_LIMIT) {
    throw tooLarge(`a part (${part.kind}) of the output format has over ${PART_TEXT_LIMIT} characters`);
  }
  if (part.kind === 'until' && text === '') throw formatInvalid('until of the output format is empty; give a text');
  if (part.kind === 'schemaText') requireWithout(part.schemaText.without);
  // A lone surrogate has no UTF-8 bytes, so no token can produce it.
  if (/\p{Cs}/u.test(text)) throw formatInvalid(`a part (${part.kind}) of the output format has half a character`);
}

function requireWithout(without: string): void {
  const { length } = [...without];
  if (length > 0 && length <= WITHOUT_LIMIT && !/\p{Cs}/u.test(without)) return;
  throw formatInvalid(`without of the output format must have 1 to ${WITHOUT_LIMIT} whole characters`);
}

/** The text of a part, whatever its kind. */
export function partText(part: OutputPart): string {
  switch (part.kind) {
    case 'literal':
      return part.literal;
    case 'jsonSchema':
      return part.jsonSchema;
    case 'until':
      return part.until;
    case 'schemaText':
      return part.schemaText.jsonSchema;
  }
}

export function formatInvalid(message: string): OdmoeError {
  return new OdmoeError('REQUEST_INVALID', message, { field: FORMAT_FIELD });
}

export function tooLarge(what: string): OdmoeError {
  return formatInvalid(`${what}; make the format smaller`);
}
