import type { FastifyInstance } from 'fastify';
import type { DoorContext } from '../door-context.js';
import { requireServedModel } from '../answer/served-model.js';
import { OPENAI } from './openai-dialect.js';

/** GET /v1/models and /v1/models/ID: the one model that is served. */
export function registerModelRoutes(app: FastifyInstance, context: DoorContext): void {
  const setting = { config: { dialect: OPENAI } };
  for (const path of ['/v1/models', '/models']) {
    app.get(path, setting, () => ({ object: 'list', data: [modelObject(context)] }));
    // A name may have slashes in it.
    app.get<{ Params: { '*': string } }>(`${path}/*`, setting, ({ params }) => {
      requireServedModel(params['*'], context);
      return modelObject(context);
    });
  }
}

function modelObject({ model }: DoorContext): object {
  return { id: model.name, object: 'model', created: model.createdS, owned_by: 'odmoe' };
}
