import type { RegisterRoutes, HttpApiContext } from '../http-api-context.js';
import { registerChatRoutes } from './chat-routes.js';
import { registerCompletionRoutes } from './completion-routes.js';
import { registerResponseRoutes } from './response-routes.js';
import type { FastifyInstance } from 'fastify';
import { answerArithmetic } from '../fields/arithmetic-field.js';
import { requireServedModel } from '../fields/model-field.js';
import { OPENAI } from './openai-dialect.js';

/** Registers OpenAI's API. */
export const registerOpenAi: RegisterRoutes = (app, context) => {
  registerModelRoutes(app, context);
  registerCompletionRoutes(app, context);
  registerChatRoutes(app, context);
  registerResponseRoutes(app, context);
};

/** GET /v1/models and /v1/models/ID: the one model that is served. */
function registerModelRoutes(app: FastifyInstance, context: HttpApiContext): void {
  const setting = { config: { dialect: OPENAI } };
  for (const path of ['/v1/models', '/models']) {
    app.get(path, setting, () => ({ object: 'list', data: [modelObject(context)] }));
    // A model's name may contain slashes.
    app.get<{ Params: { '*': string } }>(`${path}/*`, setting, ({ params }) => {
      requireServedModel(params['*'], context);
      return modelObject(context);
    });
  }
}

function modelObject({ model }: HttpApiContext): object {
  const { name: id, createdS: created, contextPositions } = model;
  // The number of context positions has the same name as in other servers.
  return {
    id,
    object: 'model',
    created,
    owned_by: 'odmoe',
    max_model_len: contextPositions,
    ...answerArithmetic(model),
  };
}
