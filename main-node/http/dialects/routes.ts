import { registerAnthropic } from '../anthropic/messages-routes.js';
import type { RegisterRoutes } from '../door-context.js';
import { registerOllama } from '../ollama/ollama-routes.js';
import { registerOpenAi } from '../openai/register-openai.js';
import { registerEvents } from '../page/events-route.js';
import { registerTokens } from '../tokens/token-routes.js';

/** What the door serves beside /health: one entry a dialect, and what the page is fed with. */
export const ROUTES: readonly RegisterRoutes[] = [
  ...[registerOpenAi, registerAnthropic, registerOllama, registerTokens],
  registerEvents,
];
