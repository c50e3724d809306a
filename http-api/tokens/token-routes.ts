import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { Tokenizer } from '../../shared/language/tokenizer/tokenizer.js';
import type { DoorContext, RegisterRoutes } from '../door-context.js';
import { openAiErrorBody } from '../errors/error-answer.js';
import { invalidField } from '../fields/field-table.js';
import { PIECES_LIMIT, readDetokenizeBody, readTokenizeBody } from './token-fields.js';
import { pieceOf, textOf } from './token-text.js';

/** Errors have OpenAI's form. */
const DIALECT = { errorBody: openAiErrorBody };

/** /tokenize and /detokenize: a text's tokens, and the reverse. */
export const registerTokens: RegisterRoutes = (app, context) => {
  app.post('/tokenize', async (request, reply) => {
    const fields = readTokenizeBody(request.body);
    const tokenizer = requireTokenizer(context);
    await context.deliverBody(request, reply, DIALECT, async (signal) => {
      const ids = await context.tokenize(fields.content, fields.add_special ?? false, signal);
      if (fields.with_pieces !== true) return { tokens: ids };
      requireFewPieces(ids.length);
      return { tokens: await piecesOf(ids, tokenizer, context.runtime) };
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
    return { content: textOf(tokens, tokenizer) };
  });
};

/** Pieces that are made before others get their turn. */
const SLICE_PIECES = 2048;

async function piecesOf(
  ids: readonly number[],
  tokenizer: Tokenizer,
  runtime: Pick<Runtime, 'nextTurn'>,
): Promise<{ id: number; piece: string | number[] }[]> {
  const pieces: { id: number; piece: string | number[] }[] = [];
  for (let first = 0; first < ids.length; first += SLICE_PIECES) {
    for (const id of ids.slice(first, first + SLICE_PIECES)) pieces.push({ id, piece: pieceOf(id, tokenizer) });
    await new Promise<void>((resolve) => {
      runtime.nextTurn(resolve);
    });
  }
  return pieces;
}

function requireFewPieces(tokens: number): void {
  if (tokens <= PIECES_LIMIT) return;
  const message = `the text has ${tokens} tokens; with_pieces shows ${PIECES_LIMIT} at most: send less, or leave it out`;
  throw invalidField('with_pieces', message);
}

function requireTokenizer({ model }: DoorContext): Tokenizer {
  if (model.tokenizer !== null) return model.tokenizer;
  throw new OdmoeError('TOKENIZER_INVALID', 'the model has no tokenizer.json, so it has no text');
}
