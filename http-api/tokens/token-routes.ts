import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import type { HttpApiContext, RegisterRoutes } from '../http-api-context.js';
import { openAiErrorBody } from '../errors/error-answer.js';
import { invalidField, type FieldTable, fieldReader } from '../fields/field-table.js';
import { z } from 'zod';
import { DETOKENIZE_LIMIT } from '../requests/body-limits.js';

/** Errors have OpenAI's form. */
const DIALECT = { errorBody: openAiErrorBody };

/** /tokenize and /detokenize: turn a text into tokens and back. */
export const registerTokens: RegisterRoutes = (app, context) => {
  app.post('/tokenize', async (request, reply) => {
    const fields = readTokenizeBody(request.body);
    const tokenizer = requireTokenizer(context);
    await context.deliverBody(request, reply, DIALECT, async (signal) => {
      const ids = await context.tokenize(fields.content, fields.add_special ?? false, signal);
      if (fields.with_pieces !== true) return { tokens: ids };
      requireFewTokens(ids.length);
      return { tokens: await tokenTextsOf(ids, tokenizer, context.runtime) };
    });
    return reply;
  });
  app.post('/detokenize', async (request) => {
    const { tokens } = readDetokenizeBody(request.body);
    const tokenizer = requireTokenizer(context);
    const wrong = tokens.findIndex((id) => id >= context.model.vocabSize);
    if (wrong >= 0) {
      const last = context.model.vocabSize - 1;
      throw invalidField(
        `tokens[${wrong}]`,
        `the token id ${tokens[wrong]} is not in the vocabulary, whose ids are 0 to ${last}`,
      );
    }
    return { content: tokensText(tokens, tokenizer) };
  });
};

/** Token texts that are made in one step before other work gets its turn. */
const STEP_TOKENS = 2048;

async function tokenTextsOf(
  ids: readonly number[],
  tokenizer: Tokenizer,
  runtime: Pick<Runtime, 'nextTurn'>,
): Promise<{ id: number; piece: string | number[] }[]> {
  const texts: { id: number; piece: string | number[] }[] = [];
  for (let first = 0; first < ids.length; first += STEP_TOKENS) {
    for (const id of ids.slice(first, first + STEP_TOKENS)) texts.push({ id, piece: tokenTextOf(id, tokenizer) });
    await new Promise<void>((resolve) => {
      runtime.nextTurn(resolve);
    });
  }
  return texts;
}

function requireFewTokens(tokens: number): void {
  if (tokens <= TOKEN_TEXTS_LIMIT) return;
  const message = `the text has ${tokens} tokens; with_pieces shows ${TOKEN_TEXTS_LIMIT} at most: send less, or leave it out`;
  throw invalidField('with_pieces', message);
}

function requireTokenizer({ model }: HttpApiContext): Tokenizer {
  if (model.tokenizer !== null) return model.tokenizer;
  throw new OdmoeError('TOKENIZER_INVALID', 'the model has no tokenizer.json, so it has no text');
}

/** Most tokens that are returned with their texts. */
const TOKEN_TEXTS_LIMIT = 65_536;

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
        `each token as \`{id, piece}\`, of at most ${TOKEN_TEXTS_LIMIT}; a piece that is a part of a character is a list of bytes`,
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

type TokenTexts = Pick<Tokenizer, 'decode' | 'isSpecial' | 'tokenBytes'>;

/** The text of a token, or its bytes if it is only a part of a character. */
export function tokenTextOf(tokenId: number, tokenizer: TokenTexts): string | number[] {
  const bytes = Buffer.from(tokenizer.tokenBytes(tokenId));
  const text = bytes.toString('utf8');
  return Buffer.from(text).equals(bytes) ? text : [...bytes];
}

/** The text from which the ids were made. Special tokens are shown by their names. */
export function tokensText(tokenIds: readonly number[], tokenizer: TokenTexts): string {
  const special = tokenIds.findIndex((id) => tokenizer.isSpecial(id));
  // Some decoders drop the space before a text's first word; only `decode` does the same.
  if (special < 0) return tokenizer.decode(tokenIds);
  const rest = tokenIds.slice(special).map((id) => tokenizer.tokenBytes(id));
  return tokenizer.decode(tokenIds.slice(0, special)) + Buffer.concat(rest).toString('utf8');
}
