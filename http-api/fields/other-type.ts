import { z } from 'zod';

/**
 * An object of any type but these, which have forms of their own beside it in a union. Without `abort` zod would report the issue of this form
 * alone, and not that of the form which the type names.
 */
export function otherType(types: readonly string[]): z.ZodObject<{ type: z.ZodString }, z.core.$loose> {
  return z.looseObject({ type: z.string().refine((type) => !types.includes(type), { abort: true }) });
}
