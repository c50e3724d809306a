import { z } from 'zod';
import { jsonObject } from '../fields/json-object.js';
import type { ChatTool, ResponseFormat } from '../conversation/chat-request.js';
import { chooseByMode, type ChosenTools, leftOutWarning, withoutForcedTool } from '../conversation/left-out-tools.js';
import { CALLER_FIELDS } from '../fields/caller-fields.js';
import { otherType } from '../fields/other-type.js';
import { writtenJson } from '../requests/written-json.js';

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

/** Notes about a function, which no chat template shows. */
const ANNOTATIONS = {
  returns: z.unknown().optional(),
  return: z.unknown().optional(),
  response: z.unknown().optional(),
  annotations: z.unknown().optional(),
  examples: z.unknown().optional(),
  input_examples: z.unknown().optional(),
  title: z.unknown().optional(),
  metadata: z.unknown().optional(),
  version: z.unknown().optional(),
  cache_control: z.unknown().optional(),
  ...CALLER_FIELDS,
} as const;

const FUNCTION = 'function';
const functionTool = z.strictObject({
  type: z.literal(FUNCTION),
  function: z.strictObject({ ...FUNCTION_FIELDS, ...ANNOTATIONS }),
  cache_control: z.unknown().optional(),
  ...CALLER_FIELDS,
});

/** A tool that a service runs, or one whose input is no JSON. Its name stands where its type has it. */
const otherTool = otherType([FUNCTION]).transform((given) => ({
  type: 'other' as const,
  other: given.type,
  name: nameIn(given) ?? nameIn(given[given.type]) ?? nameIn(given[FUNCTION]),
}));

const MODES = ['none', 'auto', 'required'] as const;
const ALLOWED = 'allowed_tools';
const namedChoice = z.strictObject({ type: z.literal(FUNCTION), function: z.strictObject({ name: z.string() }) });
const allowedChoice = z.strictObject({
  type: z.literal(ALLOWED),
  allowed_tools: z.strictObject({
    mode: z.enum(['auto', 'required']),
    tools: z.array(z.looseObject({ type: z.string() })),
  }),
});
const otherChoice = otherType([FUNCTION, ALLOWED]).transform(({ type }) => ({ type: 'other' as const, other: type }));

export const TOOL_FIELDS = {
  tools: z
    .array(
      z.union([z.discriminatedUnion('type', [functionTool]), otherTool], {
        error: 'it must be an object with a type',
      }),
    )
    .optional()
    .describe(
      'of the type `function`; the chat template gets them. `strict` changes nothing: a call that is forced always follows its schema. ' +
        'Notes such as `returns` change nothing. Tools of other types (`custom`, and those that a service runs) are left out with a word in `warnings`',
    ),
  tool_choice: z
    .union([z.enum(MODES), z.discriminatedUnion('type', [namedChoice, allowedChoice]), otherChoice], {
      error: "it must be 'none', 'auto', 'required', a function's name, or 'allowed_tools'",
    })
    .optional()
    .describe(
      '`none`, `auto`, `required`, a function, which then is called, or `allowed_tools`, of which alone the model hears; ' +
        'a tool that is left out: `auto`, with a word in `warnings`',
    ),
  parallel_tool_calls: z.boolean().optional().describe('false: at most one call where calls are forced'),
} as const;

type ToolFields = z.infer<z.ZodObject<typeof TOOL_FIELDS>>;
type OtherTool = z.infer<typeof otherTool>;

/** The tools of a request as functions, the choice among them, and a word about each tool that is left out. */
export function chosenTools({ tools: given = [], tool_choice: choice = 'auto' }: ToolFields): {
  chosen: Omit<ChosenTools, 'warning'>;
  warnings: string[];
} {
  const tools = given.flatMap((tool) => (tool.type === FUNCTION ? [toolOf(tool.function)] : []));
  const others = given.filter((tool) => tool.type === 'other');
  const { warning, ...chosen } = choose(choice, tools, others);
  const types = new Set(others.map(({ other }) => other));
  const warnings = [...types].map((type) => leftOutWarning('tools', type));
  return { chosen, warnings: warning === null ? warnings : [...warnings, warning] };
}

function choose(
  choice: NonNullable<ToolFields['tool_choice']>,
  tools: ChatTool[],
  others: readonly OtherTool[],
): ChosenTools {
  const leftOut = others.map(({ other }) => other);
  if (typeof choice === 'string') return chooseByMode(choice, { tools, leftOut });
  if (choice.type === 'other') return withoutForcedTool(tools, choice.other);
  if (choice.type === ALLOWED) {
    const { mode, tools: allowed } = choice.allowed_tools;
    const names = new Set(allowed.map((one) => nameIn(one[FUNCTION])));
    const unread = allowed.map(({ type }) => type).filter((type) => type !== FUNCTION);
    return chooseByMode(mode, { tools: tools.filter(({ name }) => names.has(name)), leftOut: unread });
  }
  const { name } = choice.function;
  const named = tools.some((tool) => tool.name === name) ? undefined : others.find((other) => other.name === name);
  return named === undefined ? { tools, toolChoice: { name }, warning: null } : withoutForcedTool(tools, named.other);
}

function nameIn(given: unknown): string | null {
  const name = typeof given === 'object' && given !== null && 'name' in given ? given.name : null;
  return typeof name === 'string' ? name : null;
}

/** A function without a description of its parameters has none. */
export function toolOf({ name, description, parameters }: FunctionFields): ChatTool {
  return { name, description: description ?? '', parameters: parameters ?? { type: 'object', properties: {} } };
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
