import { registerAnthropic } from '../anthropic/messages-routes.js';
import type { RegisterRoutes } from '../http-api-context.js';
import { registerOllama } from '../ollama/ollama-routes.js';
import { registerOpenAi } from '../openai/register-openai.js';
import { registerEvents } from '../page/events-route.js';
import { registerMachines } from '../page/machines-routes.js';
import { registerPage } from '../page/page-routes.js';
import { registerSession } from '../page/session-routes.js';
import { registerModels } from './model-routes.js';
import { registerTokens } from '../tokens/token-routes.js';

/** All routes besides /health: one entry per dialect, the page, and the routes with the page's data. */
export const HTTP_ROUTES: readonly RegisterRoutes[] = [
  registerModels,
  registerOpenAi,
  registerAnthropic,
  registerOllama,
  registerTokens,
  registerPage,
  registerSession,
  registerEvents,
  registerMachines,
];
