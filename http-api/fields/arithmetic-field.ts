/** How an answer is computed, in requests and answers of every dialect. */
import { z } from 'zod';
import type { GenerateRequest } from '../../shared/wire/messages.js';
import { isExact } from '../../shared/settings/quality.js';

/** More characters than the name of any arithmetic has. */
const ARITHMETIC_LENGTH_LIMIT = 128;

export const ARITHMETIC_FIELD = {
  arithmetic: z
    .string()
    .max(ARITHMETIC_LENGTH_LIMIT)
    .optional()
    .describe('as the answer must be computed, for example `exact`; 400 where main computes in another way'),
} as const;

/** The part of the request to the model. */
export function wantedArithmetic({
  arithmetic,
}: {
  arithmetic?: string | undefined;
}): Pick<GenerateRequest, 'arithmetic'> {
  return arithmetic === undefined ? {} : { arithmetic };
}

/** The property of an answer; an exact one has none, as in the APIs whose form it has. */
export function answerArithmetic({ arithmetic }: { readonly arithmetic: string }): { arithmetic?: string } {
  return isExact(arithmetic) ? {} : { arithmetic };
}
