import { jsonFormat } from '../../shared/language/response-format.js';
import type { GenerateRequest } from '../../shared/wire/messages.js';
import type { ClientFields } from '../answer/client-fields.js';
import { schemaOf } from '../conversation/chat-request.js';
import type { HttpApiContext, RegisterRoutes } from '../http-api-context.js';
import { wantedArithmetic } from '../fields/arithmetic-field.js';
import { requireServedModel } from '../fields/model-field.js';
import { openaiHead, answerSeeds } from './answer-requests.js';
import { responseFormatFrom } from './chat-tools.js';
import { CompletionBody, CompletionStream } from './completion-answers.js';
import { promptsFrom, readCompletionFields, type CompletionFields } from './completion-fields.js';
import { deliverAnswers } from './deliver-answers.js';
import { OPENAI } from './openai-dialect.js';
import { ALL_ROOM, samplingOfFields, stopFrom } from '../fields/sampling-fields.js';

const CLIENT_FIELDS: ClientFields = { text: 'prompt', prompt_token_ids: 'prompt', output_format: 'response_format' };

/** POST /v1/completions: continues a text, without a chat template. */
export const registerCompletionRoutes: RegisterRoutes = (app, context) => {
  for (const path of ['/v1/completions', '/completions']) {
    app.post(path, { config: { dialect: OPENAI } }, async (request, reply) => {
      const fields = readCompletionFields(request.body);
      requireServedModel(fields.model, context);
      const requests = completionRequests(fields, context);
      const head = openaiHead('cmpl-', context);
      const options = {
        tokenizer: context.model.tokenizer,
        prompts: promptsFrom(fields),
        count: fields.n ?? 1,
        echo: fields.echo ?? false,
        logprobs: fields.logprobs ?? null,
      };
      const asked = { requests, answersPerPrompt: options.count, names: CLIENT_FIELDS };
      await deliverAnswers(context, { request, reply }, fields, asked, {
        stream: () => new CompletionStream(head, options),
        body: () => new CompletionBody(head, options),
      });
    });
  }
};

function completionRequests(fields: CompletionFields, { runtime }: HttpApiContext): GenerateRequest[] {
  const seeds = answerSeeds(fields.seed, fields.n ?? 1, runtime);
  const format = responseFormatFrom(fields.response_format);
  const outputFormat = format === null ? null : jsonFormat(schemaOf(format));
  return promptsFrom(fields).flatMap(({ text, tokenIds }) =>
    seeds.map((seed) => ({
      ...wantedArithmetic(fields),
      text: text ?? '',
      messages: [],
      promptTokenIds: tokenIds ?? [],
      raw: tokenIds === null,
      maxTokens: Math.min(fields.max_tokens ?? ALL_ROOM, ALL_ROOM),
      sampling: { ...samplingOfFields(fields, seed), outputFormat },
      stop: stopFrom(fields),
      ignoreEos: fields.ignore_eos ?? false,
      // If 0 alternatives are requested, one is asked for, because the chosen token's own log-probability comes with it.
      logprobs: fields.logprobs === undefined ? 0 : Math.max(1, fields.logprobs),
      promptLogprobs: fields.echo === true && fields.logprobs !== undefined,
    })),
  );
}
