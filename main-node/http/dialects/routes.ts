import type { RegisterRoutes } from '../door-context.js';

/** What the door serves beside /health, one entry a dialect. */
export const ROUTES: readonly RegisterRoutes[] = [];
