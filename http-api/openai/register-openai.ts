import type { RegisterRoutes } from '../door-context.js';
import { registerChatRoutes } from './chat-routes.js';
import { registerCompletionRoutes } from './completion-routes.js';
import { registerModelRoutes } from './model-routes.js';
import { registerResponseRoutes } from './response-routes.js';

/** OpenAI's API. */
export const registerOpenAi: RegisterRoutes = (app, context) => {
  registerModelRoutes(app, context);
  registerCompletionRoutes(app, context);
  registerChatRoutes(app, context);
  registerResponseRoutes(app, context);
};
