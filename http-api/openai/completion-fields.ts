import { z } from 'zod';
import {
  choicesField,
  CHOICES_LIMIT,
  maxTokensField,
  requireFewAlternatives,
  STREAM_FIELDS,
  topLogprobsField,
} from './chat-fields.js';
import { IGNORED_FIELDS, NEUTRAL_FIELDS, PREDICTION_FIELD, REFUSED_FIELDS } from './other-fields.js';
import { responseFormatField } from './chat-tools.js';
import { ARITHMETIC_FIELD } from '../fields/arithmetic-field.js';
import { fieldReader, invalidField, type Fields, type FieldTable } from '../fields/field-table.js';
import { SAMPLING_FIELDS } from '../fields/sampling-fields.js';

/** Most answers to all prompts of a request. */
export const ANSWERS_LIMIT = 1024;

const FORMS = 'it must be a text, a list of texts, token ids or a list of token ids; none may be empty';
const EMPTY = 'a prompt must not be empty';

type PromptField = string | string[] | number[] | number[][];

/** Checks up to a million token ids in one pass. A union of schemas would try each schema and report every wrong element. */
const promptField = z.unknown().transform((given, context): PromptField => {
  const fault = promptFault(given);
  if (fault === null) return given as PromptField;
  context.issues.push({ code: 'custom', input: given, ...fault });
  return z.NEVER;
});

/** The first fault; null: there is none. */
function promptFault(given: unknown): { message: string; path: number[] } | null {
  if (typeof given === 'string') return given === '' ? { message: EMPTY, path: [] } : null;
  if (!Array.isArray(given) || given.length === 0) return { message: FORMS, path: [] };
  const prompts: readonly unknown[] = given;
  const [first] = prompts;
  if (typeof first === 'number') return isTokenIds(prompts) ? null : { message: FORMS, path: [] };
  const wrong = prompts.findIndex((one) =>
    typeof first === 'string' ? typeof one !== 'string' || one === '' : !isTokenIds(one),
  );
  return wrong < 0 ? null : { message: prompts[wrong] === '' ? EMPTY : FORMS, path: [wrong] };
}

function isTokenIds(given: unknown): boolean {
  return (
    Array.isArray(given) && given.length > 0 && given.every((id) => Number.isSafeInteger(id) && (id as number) >= 0)
  );
}

export const COMPLETION_FIELDS = {
  done: {
    prompt: promptField.describe(
      'a text, texts, token ids, or lists of token ids, taken as they are; choices are numbered prompt by prompt',
    ),
    ...STREAM_FIELDS,
    max_tokens: maxTokensField
      .optional()
      .describe(
        'what the context does not hold is cut off; left out or -1: the room that the prompt leaves. 0 runs the prompt alone',
      ),
    n: choicesField.describe(`answers to each prompt, up to ${CHOICES_LIMIT}; answer i has the seed \`seed + i\``),
    best_of: choicesField.describe('the same as `n` only'),
    ...SAMPLING_FIELDS,
    ...ARITHMETIC_FIELD,
    logprobs: topLogprobsField.describe('alternatives of each token; the token itself is always there'),
    response_format: responseFormatField,
    echo: z
      .boolean()
      .optional()
      .describe("the prompt's text comes first; with `logprobs` its tokens' log-probabilities, too"),
  },
  ignored: [...IGNORED_FIELDS, PREDICTION_FIELD, 'store'],
  neutral: { ...NEUTRAL_FIELDS, suffix: [''] },
  refused: REFUSED_FIELDS,
} satisfies FieldTable<z.ZodRawShape>;

export type CompletionFields = Fields<typeof COMPLETION_FIELDS>;

const readFields = fieldReader(COMPLETION_FIELDS);

export function readCompletionFields(body: unknown): CompletionFields {
  const fields = readFields(body);
  const { n = 1, best_of: bestOf = n } = fields;
  if (bestOf !== n)
    throw invalidField('best_of', `best_of is ${bestOf}; it is supported only where it equals n, which is ${n}`);
  const prompts = promptsFrom(fields).length;
  requireFewAlternatives(fields.logprobs ?? 0, prompts * n, 'logprobs');
  if (prompts * n <= ANSWERS_LIMIT) return fields;
  throw invalidField(
    'prompt',
    `${prompts} prompts with ${n} answers each were asked for; a request takes ${ANSWERS_LIMIT} answers`,
  );
}

export type CompletionPrompt = { text: string; tokenIds: null } | { text: null; tokenIds: number[] };

export function promptsFrom({ prompt }: Pick<CompletionFields, 'prompt'>): CompletionPrompt[] {
  if (typeof prompt === 'string') return [{ text: prompt, tokenIds: null }];
  if (isNumbers(prompt)) return [{ text: null, tokenIds: prompt }];
  return prompt.map((one: string | number[]) =>
    typeof one === 'string' ? { text: one, tokenIds: null } : { text: null, tokenIds: one },
  );
}

function isNumbers(prompt: readonly unknown[]): prompt is number[] {
  return typeof prompt[0] === 'number';
}
