import type { RegisterRoutes } from '../http-api-context.js';
import { registerChatRoutes } from './chat-routes.js';
import { registerCompletionRoutes } from './completion-routes.js';
import { registerResponseRoutes } from './response-routes.js';

/** Registers OpenAI's API. */
export const registerOpenAi: RegisterRoutes = (app, context) => {
  registerCompletionRoutes(app, context);
  registerChatRoutes(app, context);
  registerResponseRoutes(app, context);
};
