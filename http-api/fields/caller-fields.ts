import { z } from 'zod';

/** Properties of a tool that say who may call it, and when it is shown. They change nothing here: each tool is offered at once. */
export const CALLER_FIELDS = {
  allowed_callers: z.unknown().optional(),
  defer_loading: z.boolean().nullish(),
  output_schema: z.unknown().optional(),
} as const;
