import { z } from 'zod';
import { type FieldTable, fieldReader } from '../fields/field-table.js';
import { DETOKENIZE_LIMIT } from '../requests/body-limits.js';

/** Most tokens that are told with their pieces. */
export const PIECES_LIMIT = 65_536;

export const TOKENIZE_TABLE = {
  done: {
    content: z
      .string()
      .describe(
        'the text, up to 1 MiB, or more where the context may hold it; names of special tokens in it become those tokens',
      ),
    add_special: z
      .boolean()
      .optional()
      .describe('with the special tokens that the model wants around a text; default false'),
    with_pieces: z
      .boolean()
      .optional()
      .describe(
        `each token as \`{id, piece}\`, of at most ${PIECES_LIMIT}; a piece that is a part of a character is a list of bytes`,
      ),
  },
  ignored: ['model'],
  neutral: { parse_special: [true] },
  refused: {},
} as const satisfies FieldTable<z.ZodRawShape>;

export const DETOKENIZE_TABLE = {
  done: {
    tokens: z
      .array(z.int().min(0))
      .max(DETOKENIZE_LIMIT)
      .describe(`up to ${DETOKENIZE_LIMIT} ids; special tokens become their names`),
  },
  ignored: ['model'],
  neutral: {},
  refused: {},
} as const satisfies FieldTable<z.ZodRawShape>;

export const readTokenizeBody = fieldReader(TOKENIZE_TABLE);
export const readDetokenizeBody = fieldReader(DETOKENIZE_TABLE);
