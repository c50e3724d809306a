import { z } from 'zod';
import { jsonObject } from '../fields/json-object.js';

/** Most characters of an unknown type that an error message shows. */
const TYPE_SHOWN_LIMIT = 40;

/** Marks for a prompt cache; they do not change any answer. */
const cache_control = z.unknown().optional();

const textBlock = z.strictObject({
  type: z.literal('text'),
  text: z.string(),
  cache_control,
  citations: z.null().optional(),
});
const textOnly = z.discriminatedUnion('type', [textBlock], { error: otherBlock });
const toolUseBlock = z.strictObject({
  type: z.literal('tool_use'),
  id: z.string().min(1),
  name: z.string().min(1),
  input: jsonObject,
  cache_control,
  caller: z.unknown().optional(),
});
const toolResultBlock = z.strictObject({
  type: z.literal('tool_result'),
  tool_use_id: z.string().min(1),
  content: z.union([z.string(), z.array(textOnly)]).optional(),
  is_error: z.boolean().nullish(),
  cache_control,
});
/** The signature is ignored: reasoning is taken as it is. */
const thinkingBlock = z.strictObject({
  type: z.literal('thinking'),
  thinking: z.string(),
  signature: z.string().nullish(),
});

const anyBlock = z.discriminatedUnion('type', [textBlock, toolUseBlock, toolResultBlock, thinkingBlock], {
  error: otherBlock,
});

export type ContentBlock = z.infer<typeof anyBlock>;

export const textSchema = z.union([z.string(), z.array(textOnly)]);

export const messagesSchema = z
  .array(
    z.strictObject({
      role: z.enum(['user', 'assistant', 'system']),
      content: z.union([z.string(), z.array(anyBlock).min(1)]),
    }),
  )
  .min(1);

/** A tool of the client. Tools that Anthropic runs are not supported. */
const toolSchema = z.strictObject({
  type: z.literal('custom', { error: 'only tools of the type custom are supported' }).nullish(),
  name: z.string().min(1),
  description: z.string().nullish(),
  input_schema: jsonObject,
  cache_control,
  /** A wish about how its arguments are streamed. */
  eager_input_streaming: z.boolean().nullish(),
  /** A forced call follows its schema with or without this flag. */
  strict: z.boolean().nullish(),
  defer_loading: z.literal(false).nullish(),
  allowed_callers: z.tuple([z.literal('direct')]).nullish(),
  input_examples: z.tuple([]).nullish(),
});

export const toolsSchema = z.array(toolSchema);

const disable_parallel_tool_use = z.boolean().nullish();

export const toolChoiceSchema = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('auto'), disable_parallel_tool_use }),
  z.strictObject({ type: z.literal('any'), disable_parallel_tool_use }),
  z.strictObject({ type: z.literal('tool'), name: z.string().min(1), disable_parallel_tool_use }),
  z.strictObject({ type: z.literal('none') }),
]);

/** Reasoning is shown as it is; only max_tokens bounds it. */
export const thinkingSchema = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('enabled'),
    budget_tokens: z.int().min(1).optional(),
    display: z.literal('summarized').nullish(),
  }),
  z.strictObject({ type: z.literal('adaptive'), display: z.literal('summarized').nullish() }),
  z.strictObject({ type: z.literal('disabled') }),
]);

export const outputConfigSchema = z.strictObject({
  effort: z.enum(['low', 'medium', 'high', 'xhigh', 'max']).nullish(),
  format: z.strictObject({ type: z.literal('json_schema'), schema: jsonObject }).nullish(),
});

export type AnthropicMessage = z.infer<typeof messagesSchema>[number];
export type TextParameter = z.infer<typeof textSchema>;
export type ToolChoiceParameter = z.infer<typeof toolChoiceSchema>;

/** The error names the type of a block that is refused: images, documents and blocks of Anthropic's own tools. */
function otherBlock({ input }: { input?: unknown }): string {
  const type = typeof input === 'object' && input !== null && 'type' in input ? input.type : undefined;
  if (typeof type !== 'string') return 'it must be an object with a type';
  return `a block of the type ${JSON.stringify(type.slice(0, TYPE_SHOWN_LIMIT))} is not supported here`;
}
