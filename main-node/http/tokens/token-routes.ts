import { OdmoeError } from '../../../shared/errors/odmoe-error.js';
import type { Tokenizer } from '../../../shared/tokenizer/tokenizer.js';
import type { DoorContext, RegisterRoutes } from '../door-context.js';
import { openAiErrorBody } from '../errors/error-answer.js';
import { invalidField } from '../fields/field-table.js';
import { readDetokenizeBody, readTokenizeBody } from './token-fields.js';
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
      return { tokens: ids.map((id) => ({ id, piece: pieceOf(id, tokenizer) })) };
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

function requireTokenizer({ model }: DoorContext): Tokenizer {
  if (model.tokenizer !== null) return model.tokenizer;
  throw new OdmoeError('TOKENIZER_INVALID', 'the model has no tokenizer.json, so it has no text');
}
