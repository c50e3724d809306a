import { z } from 'zod';
import type { ChatTool } from '../conversation/chat-request.js';
import { chooseByMode, type ChosenTools, withoutForcedTool } from '../conversation/left-out-tools.js';
import { CALLER_FIELDS } from '../fields/caller-fields.js';
import { otherType } from '../fields/other-type.js';
import { FUNCTION_FIELDS, schemaObject, toolOf } from './chat-tools.js';

const functionTool = z.strictObject({ type: z.literal('function'), ...FUNCTION_FIELDS, ...CALLER_FIELDS });

const customTool = z.strictObject({
  type: z.literal('custom'),
  name: z.string(),
  description: z.string().nullish(),
  format: z
    .discriminatedUnion(
      'type',
      [
        z.strictObject({ type: z.literal('text') }),
        z.strictObject({ type: z.literal('grammar'), syntax: z.string(), definition: z.string() }),
      ],
      { error: "its type must be 'text' or 'grammar'" },
    )
    .nullish(),
  ...CALLER_FIELDS,
});

const namespaceTool = z.strictObject({
  type: z.literal('namespace'),
  name: z.string().min(1),
  description: z.string().nullish(),
  tools: z.array(
    z.union([z.discriminatedUnion('type', [functionTool, customTool]), otherType(['function', 'custom'])], {
      error: 'it must be an object with a type',
    }),
  ),
});

const searchTool = z.strictObject({
  type: z.literal('tool_search'),
  execution: z.enum(['client', 'server']).nullish(),
  description: z.string().nullish(),
  parameters: schemaObject.nullish(),
});

const OFFERED_TYPES: readonly string[] = ['function', 'custom', 'namespace', 'tool_search'];

export const responseTool = z.union(
  [z.discriminatedUnion('type', [functionTool, customTool, namespaceTool, searchTool]), otherType(OFFERED_TYPES)],
  { error: 'it must be an object with a type' },
);

export type ResponseTool = z.infer<typeof responseTool>;

/** The name of the function by which a client's search for tools is offered. */
export const SEARCH_NAME = 'tool_search';
/** The only argument of a function that stands for a custom tool. */
export const CUSTOM_INPUT = 'input';
/** Most characters of a function's name. */
const NAME_LIMIT = 64;

/** The form in which a call of a function reaches the client. `name`: without its namespace. */
export interface CallForm {
  kind: 'function' | 'custom' | 'search';
  name: string;
  namespace: string | null;
}

/** The tools of a request as functions, by the model's names for them. */
export interface OfferedTools {
  tools: ChatTool[];
  forms: ReadonlyMap<string, CallForm>;
  /** Types of the tools that only OpenAI runs. */
  leftOut: readonly string[];
}

/** The model's name of a tool. A name that is too long loses its beginning, which is the namespace. */
export function offeredName(namespace: string | null | undefined, name: string): string {
  if (namespace === null || namespace === undefined || namespace === '') return name;
  return `${namespace}__${name}`.slice(-NAME_LIMIT);
}

/** `found`: tools that items of the input bring. A tool that is there already is not added again. */
export function offerTools(given: readonly ResponseTool[], found: readonly ResponseTool[]): OfferedTools {
  const tools: ChatTool[] = [];
  const forms = new Map<string, CallForm>();
  const leftOut = new Set<string>();
  const offer = (one: ResponseTool, isFound: boolean): void => {
    const { offered, others } = functionsOf(one);
    for (const type of others) leftOut.add(type);
    for (const { tool, form } of offered) {
      if (isFound && forms.has(tool.name)) continue;
      tools.push(tool);
      forms.set(tool.name, form);
    }
  };
  for (const one of given) offer(one, false);
  for (const one of found) offer(one, true);
  return { tools, forms, leftOut: [...leftOut] };
}

interface OfferedTool {
  tool: ChatTool;
  form: CallForm;
}

/** `others`: types of the tools that only OpenAI runs. */
function functionsOf(given: ResponseTool): { offered: OfferedTool[]; others: string[] } {
  if (isTool(given, 'namespace')) return namespaceFunctions(given);
  if (isTool(given, 'tool_search') && given.execution === 'client') {
    const { description, parameters } = given;
    const form: CallForm = { kind: 'search', name: SEARCH_NAME, namespace: null };
    return { offered: [{ tool: toolOf({ name: SEARCH_NAME, description, parameters }), form }], others: [] };
  }
  if (isTool(given, 'function') || isTool(given, 'custom')) return { offered: [functionOf(given, null)], others: [] };
  return { offered: [], others: [given.type] };
}

function namespaceFunctions({ name, description, tools }: z.infer<typeof namespaceTool>): {
  offered: OfferedTool[];
  others: string[];
} {
  const offered = tools.flatMap((one) =>
    isTool(one, 'function') || isTool(one, 'custom') ? [functionOf(one, name)] : [],
  );
  const [first] = offered;
  // The description of the namespace stands once: in the prompt each word costs time.
  if (first !== undefined && description) {
    first.tool = { ...first.tool, description: `${name}: ${description}\n\n${first.tool.description}` };
  }
  const others = tools.map(({ type }) => type).filter((type) => type !== 'function' && type !== 'custom');
  return { offered, others };
}

type KnownTool = Extract<ResponseTool, { type: 'function' | 'custom' | 'namespace' | 'tool_search' }>;

function isTool<Type extends KnownTool['type']>(
  given: ResponseTool | z.infer<typeof namespaceTool>['tools'][number],
  type: Type,
): given is Extract<KnownTool, { type: Type }> {
  return given.type === type;
}

function functionOf(
  given: z.infer<typeof functionTool> | z.infer<typeof customTool>,
  namespace: string | null,
): OfferedTool {
  const { name } = given;
  const tool = given.type === 'function' ? toolOf(given) : customFunction(given);
  return { tool: { ...tool, name: offeredName(namespace, name) }, form: { kind: given.type, name, namespace } };
}

function customFunction({ name, description, format }: z.infer<typeof customTool>): ChatTool {
  const grammar =
    format?.type === 'grammar' ? `The input must follow this grammar (${format.syntax}):\n${format.definition}` : '';
  return {
    name,
    description: [description ?? '', grammar].filter((text) => text !== '').join('\n\n'),
    parameters: {
      type: 'object',
      properties: { [CUSTOM_INPUT]: { type: 'string', description: 'the whole input of the tool' } },
      required: [CUSTOM_INPUT],
      additionalProperties: false,
    },
  };
}

const MODES = ['none', 'auto', 'required'] as const;
const namedChoice = z.strictObject({
  type: z.enum(['function', 'custom']),
  name: z.string(),
  namespace: z.string().nullish(),
});
const allowedChoice = z.strictObject({
  type: z.literal('allowed_tools'),
  mode: z.enum(['auto', 'required']),
  tools: z.array(z.looseObject({ type: z.string(), name: z.string().nullish(), namespace: z.string().nullish() })),
});
const CHOICE_TYPES: readonly string[] = ['function', 'custom', 'allowed_tools'];

export const responseToolChoice = z.union(
  [z.enum(MODES), z.discriminatedUnion('type', [namedChoice, allowedChoice]), otherType(CHOICE_TYPES)],
  { error: "it must be 'none', 'auto', 'required', a tool's type and name, or 'allowed_tools'" },
);

export function chooseTools(choice: z.infer<typeof responseToolChoice>, offered: OfferedTools): ChosenTools {
  const { tools, forms } = offered;
  if (typeof choice === 'string') return chooseByMode(choice, offered);
  if (isAllowed(choice)) {
    const allowed = tools.filter(({ name }) => {
      const form = forms.get(name);
      return form !== undefined && choice.tools.some((one) => allows(one, form));
    });
    const leftOut = choice.tools.map(({ type }) => type).filter((type) => !OFFERED_TYPES.includes(type));
    return chooseByMode(choice.mode, { ...offered, tools: allowed, leftOut });
  }
  if (isNamed(choice)) {
    const exact = offeredName(choice.namespace, choice.name);
    const inside = [...forms].find(([, { name }]) => name === choice.name)?.[0];
    return { tools, toolChoice: { name: forms.has(exact) ? exact : (inside ?? exact) }, warning: null };
  }
  return withoutForcedTool(tools, choice.type);
}

type ObjectChoice = Exclude<z.infer<typeof responseToolChoice>, string>;

function isAllowed(choice: ObjectChoice): choice is z.infer<typeof allowedChoice> {
  return choice.type === 'allowed_tools';
}

function isNamed(choice: ObjectChoice): choice is z.infer<typeof namedChoice> {
  return choice.type === 'function' || choice.type === 'custom';
}

type AllowedTool = z.infer<typeof allowedChoice>['tools'][number];

function allows({ type, name, namespace }: AllowedTool, form: CallForm): boolean {
  if (type === 'namespace') return form.namespace === name;
  if (type === SEARCH_NAME) return form.kind === 'search';
  return type === form.kind && name === form.name && (namespace ?? form.namespace) === form.namespace;
}
