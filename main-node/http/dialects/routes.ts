import type { RegisterRoutes } from '../door-context.js';
import { registerOpenAi } from '../openai/register-openai.js';

/** What the door serves beside /health, one entry a dialect. */
export const ROUTES: readonly RegisterRoutes[] = [registerOpenAi];
