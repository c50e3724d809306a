import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { MEGABYTE_BYTES } from '../../shared/wire/limits.js';

/** In place of TEXT: the prompt comes by standard input, so that it stands in no list of processes and no history of a shell. */
export const FROM_STANDARD_INPUT = '-';
const PROMPT_LIMIT_BYTES = 2 * MEGABYTE_BYTES;

/** Standard input; `isTTY`: a person types there. */
type PromptInput = AsyncIterable<Buffer> & { readonly isTTY?: boolean };

/**
 * The prompt: TEXT, or all of standard input without its last line's end, where TEXT is "-" or where it is left out (`mayBeMissing` false) and no
 * person types there. `input` ends. Throws USAGE for more than 2 MiB.
 */
export async function promptText(
  text: string | undefined,
  mayBeMissing: boolean,
  input: PromptInput = process.stdin,
): Promise<string | undefined> {
  if (text !== undefined && text !== FROM_STANDARD_INPUT) return text;
  if (text === undefined && (mayBeMissing || input.isTTY === true)) return undefined;
  const read = await textOf(input);
  return text === undefined && read === '' ? undefined : read;
}

async function textOf(input: AsyncIterable<Buffer>): Promise<string> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of input) {
    bytes += part.length;
    if (bytes > PROMPT_LIMIT_BYTES) {
      throw new OdmoeError(
        'USAGE',
        `the prompt on standard input is longer than ${PROMPT_LIMIT_BYTES} bytes: give a shorter one`,
      );
    }
    parts.push(part);
  }
  return Buffer.concat(parts)
    .toString('utf8')
    .replace(/\r?\n$/, '');
}
