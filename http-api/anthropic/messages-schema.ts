import { z } from 'zod';
import { jsonObject } from '../fields/json-object.js';
import { otherType } from '../fields/other-type.js';
import type { GivenBlock } from './other-blocks.js';

/** Marks for a prompt cache; they do not change any answer. */
const cache_control = z.unknown().optional();

const textBlock = z.strictObject({
  type: z.literal('text'),
  text: z.string(),
  cache_control,
  /** Places of documents on which an earlier answer was based. */
  citations: z.unknown().optional(),
});
const NO_BLOCK = { error: 'it must be an object with a type' };
const NO_TYPE = { error: 'it must be the type of a block' };
const textOrOther = z.union([textBlock, otherBlock(['text'])], NO_BLOCK);
const toolUseBlock = z.strictObject({
  type: z.literal('tool_use'),
  id: z.string().min(1),
  name: z.string().min(1),
  input: jsonObject,
  cache_control,
  caller: z.unknown().optional(),
  toolset_name: z.unknown().optional(),
});
const toolResultBlock = z.strictObject({
  type: z.literal('tool_result'),
  tool_use_id: z.string().min(1),
  content: z.union([z.string(), z.array(textOrOther)]).nullish(),
  is_error: z.boolean().nullish(),
  cache_control,
});
/** The signature is ignored: reasoning is taken as it is. */
const thinkingBlock = z.strictObject({
  type: z.literal('thinking'),
  thinking: z.string(),
  signature: z.string().nullish(),
  cache_control,
});

const anyBlock = z.union(
  [
    z.discriminatedUnion('type', [textBlock, toolUseBlock, toolResultBlock, thinkingBlock], NO_TYPE),
    otherBlock(['text', 'tool_use', 'tool_result', 'thinking']),
  ],
  NO_BLOCK,
);

export type ContentBlock = z.infer<typeof anyBlock>;

export const textSchema = z.union([z.string(), z.array(textOrOther)]);

export const messagesSchema = z
  .array(
    z.strictObject({
      role: z.enum(['user', 'assistant', 'system']),
      content: z.union([z.string(), z.array(anyBlock).min(1)]),
    }),
  )
  .min(1);

/** How thoughts are shown and sent back. They are shown as they are. */
const SHOWN_FIELDS = { display: z.unknown().optional(), block_binding: z.unknown().optional() } as const;

/** Only max_tokens bounds reasoning. */
export const thinkingSchema = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('enabled'), budget_tokens: z.int().min(1).nullish(), ...SHOWN_FIELDS }),
  z.strictObject({ type: z.literal('adaptive'), budget_tokens: z.int().min(1).nullish(), ...SHOWN_FIELDS }),
  z.strictObject({ type: z.literal('disabled'), ...SHOWN_FIELDS }),
]);

export const formatSchema = z.strictObject({ type: z.literal('json_schema'), schema: jsonObject });

export const outputConfigSchema = z.strictObject({
  effort: z.enum(['low', 'medium', 'high', 'xhigh', 'max']).nullish(),
  format: formatSchema.nullish(),
  /** A hint to the model of how many tokens a whole task may take. */
  task_budget: z.unknown().optional(),
});

/** Edits by which Anthropic shortens a conversation. */
export const contextSchema = z.looseObject({
  edits: z.array(z.looseObject({ type: z.string(), keep: z.unknown().optional() })).nullish(),
});

export type AnthropicMessage = z.infer<typeof messagesSchema>[number];
export type TextParameter = z.infer<typeof textSchema>;
export type ResultContent = z.infer<typeof toolResultBlock>['content'];

/** A block of any type but these. */
function otherBlock(types: readonly string[]): z.ZodType<{ type: 'other'; given: GivenBlock }> {
  return otherType(types).transform((given) => ({ type: 'other' as const, given }));
}
