import type { FastifyRequest } from 'fastify';
import { anthropicModel, anthropicModels } from '../anthropic/model-listing.js';
import { ANTHROPIC } from '../anthropic/messages-routes.js';
import { requireServedModel } from '../fields/model-field.js';
import type { RegisterRoutes } from '../http-api-context.js';
import { openaiModel, openaiModels } from '../openai/model-listing.js';
import { OPENAI } from '../openai/openai-dialect.js';

/** GET /v1/models and /v1/models/ID: the one model that is served. The path is OpenAI's and Anthropic's; each gets its own form. */
export const registerModels: RegisterRoutes = (app, context) => {
  const { model } = context;
  const dialect = (request: FastifyRequest): typeof ANTHROPIC | typeof OPENAI =>
    isAnthropic(request) ? ANTHROPIC : OPENAI;
  const setting = { config: { dialect, requestIdHeader: 'request-id' } };
  for (const path of ['/v1/models', '/models']) {
    app.get(path, setting, (request) => (isAnthropic(request) ? anthropicModels(model) : openaiModels(model)));
    // A model's name may contain slashes.
    app.get<{ Params: { '*': string } }>(`${path}/*`, setting, (request) => {
      requireServedModel(request.params['*'], context);
      return isAnthropic(request) ? anthropicModel(model) : openaiModel(model);
    });
  }
};

/** Every client of Anthropic's API says so. */
function isAnthropic({ headers }: Pick<FastifyRequest, 'headers'>): boolean {
  return headers['anthropic-version'] !== undefined;
}
