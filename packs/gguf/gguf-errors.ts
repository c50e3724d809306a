import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { FileErrors } from '../../shared/base/files/read-file.js';
import { printableJson } from '../../shared/base/text/printable-text.js';
import type { GgufValue } from './gguf-types.js';

export const GGUF_FILE_ERRORS: FileErrors = {
  missing: 'MODEL_NOT_FOUND',
  invalid: 'MODEL_CORRUPT',
  remedy: 'download the file again, with all parts if it is a split one',
};

/** Most characters of a name or text, and most elements of a list, in a message. */
const SHOWN_CHARACTERS = 80;
const SHOWN_ELEMENTS = 8;

/** The error for a GGUF file that is damaged or contradicts itself. */
export function corruptGguf(path: string, problem: string): OdmoeError {
  return new OdmoeError('MODEL_CORRUPT', `${path}: ${problem}; ${GGUF_FILE_ERRORS.remedy}`);
}

/** A name, or a key's value, for a message: shortened if it is long. */
export function shownGgufValue(value: GgufValue): string {
  if (typeof value === 'string') {
    const cut = value.length > SHOWN_CHARACTERS;
    return cut ? `${printableJson(value.slice(0, SHOWN_CHARACTERS))}...` : printableJson(value);
  }
  if (typeof value !== 'object') return String(value);
  const shown = value.slice(0, SHOWN_ELEMENTS).map(shownGgufValue).join(', ');
  return value.length > SHOWN_ELEMENTS ? `[${shown}, ...] (${value.length} values)` : `[${shown}]`;
}
