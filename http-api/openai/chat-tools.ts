import { z } from 'zod';
import { jsonObject } from '../fields/json-object.js';
import type { ChatTool, ResponseFormat, ToolChoice } from '../conversation/chat-request.js';
import { writtenJson } from '../requests/written-json.js';

export const ONLY_FUNCTIONS = "only tools of the type 'function' are supported";
/** A JSON schema. Its content is checked when the answer's format is made from it. */
export const schemaObject = jsonObject;

/** Fields of a function. Its name is checked like those of all clients' tools (check-chat). */
export const FUNCTION_FIELDS = {
  name: z.string(),
  description: z.string().nullish(),
  parameters: schemaObject.nullish(),
  strict: z.boolean().nullish(),
} as const;

type FunctionFields = z.infer<z.ZodObject<typeof FUNCTION_FIELDS>>;

const tool = z.strictObject({
  type: z.literal('function', { error: ONLY_FUNCTIONS }),
  function: z.strictObject(FUNCTION_FIELDS),
  cache_control: z.unknown().optional(),
});

export const TOOL_FIELDS = {
  tools: z
    .array(tool)
    .optional()
    .describe(
      'of the type `function`; the chat template gets them. `strict` changes nothing: a call that is forced always follows its schema',
    ),
  tool_choice: z
    .union(
      [
        z.enum(['none', 'auto', 'required']),
        z.strictObject({
          type: z.literal('function', { error: ONLY_FUNCTIONS }),
          function: z.strictObject({ name: z.string() }),
        }),
      ],
      { error: "it must be 'none', 'auto', 'required' or a function's name" },
    )
    .optional()
    .describe('`none`, `auto`, `required`, or a function, which then is called'),
  parallel_tool_calls: z.boolean().optional().describe('false: at most one call where calls are forced'),
} as const;

type ToolFields = z.infer<z.ZodObject<typeof TOOL_FIELDS>>;

export function toolsFrom({ tools = [] }: ToolFields): ChatTool[] {
  return tools.map(({ function: given }) => toolOf(given));
}

/** A function without a description of its parameters has none. */
export function toolOf({ name, description, parameters }: FunctionFields): ChatTool {
  return { name, description: description ?? '', parameters: parameters ?? { type: 'object', properties: {} } };
}

export function toolChoiceFrom({ tool_choice: choice }: ToolFields): ToolChoice {
  if (choice === undefined) return 'auto';
  return typeof choice === 'string' ? choice : { name: choice.function.name };
}

const namedSchema = z.strictObject({
  name: z.string().nullish(),
  description: z.string().nullish(),
  schema: schemaObject.nullish(),
  strict: z.boolean().nullish(),
});

export const responseFormatField = z
  .discriminatedUnion(
    'type',
    [
      z.strictObject({ type: z.literal('text') }),
      z.strictObject({ type: z.literal('json_object'), schema: schemaObject.nullish() }),
      z
        .strictObject({
          type: z.literal('json_schema'),
          json_schema: namedSchema.nullish(),
          schema: schemaObject.nullish(),
        })
        .refine(({ json_schema: named, schema }) => Boolean(named) !== Boolean(schema), {
          error: 'it must hold the schema once, as json_schema.schema or as schema',
        }),
    ],
    { error: "its type must be 'text', 'json_object' or 'json_schema'" },
  )
  .optional()
  .describe(
    '`text`, `json_object` (with a `schema`, too), `json_schema`; the answer follows it, whatever `strict` says',
  );

export function responseFormatFrom(format: z.infer<typeof responseFormatField>): ResponseFormat | null {
  if (format === undefined || format.type === 'text') return null;
  const schema = format.type === 'json_object' ? format.schema : (format.schema ?? format.json_schema?.schema ?? {});
  return schema === undefined || schema === null
    ? { kind: 'json_object' }
    : { kind: 'json_schema', schema: writtenJson(schema) };
}
