import { z } from 'zod';
import type { ChatTool } from '../conversation/chat-request.js';
import { chooseByMode, type ChosenTools, leftOutWarning, withoutForcedTool } from '../conversation/left-out-tools.js';
import { CALLER_FIELDS } from '../fields/caller-fields.js';
import { jsonObject } from '../fields/json-object.js';
import { otherType } from '../fields/other-type.js';

const customTool = z.strictObject({
  type: z.literal('custom').nullish(),
  name: z.string().min(1),
  description: z.string().nullish(),
  input_schema: jsonObject,
  /** Examples of arguments. */
  input_examples: z.array(jsonObject).nullish(),
  cache_control: z.unknown().optional(),
  /** A wish about how its arguments are streamed. */
  eager_input_streaming: z.boolean().nullish(),
  /** A forced call follows its schema with or without this flag. */
  strict: z.boolean().nullish(),
  ...CALLER_FIELDS,
});

const hostedTool = otherType(['custom']).transform(({ type, name }) => ({
  type: 'hosted' as const,
  hosted: type,
  name: typeof name === 'string' ? name : null,
}));

export const toolsField = z.array(z.union([customTool, hostedTool]));

/** Servers of tools that Anthropic calls. */
export const toolServersField = z.array(z.looseObject({}));

const disable_parallel_tool_use = z.boolean().nullish();

export const toolChoiceField = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('auto'), disable_parallel_tool_use }),
  z.strictObject({ type: z.literal('any'), disable_parallel_tool_use }),
  z.strictObject({ type: z.literal('tool'), name: z.string().min(1), disable_parallel_tool_use }),
  z.strictObject({ type: z.literal('none'), disable_parallel_tool_use }),
]);

/** Fields of a request about tools. */
export interface ToolFields {
  tools?: z.infer<typeof toolsField> | undefined;
  tool_choice?: z.infer<typeof toolChoiceField> | undefined;
  mcp_servers?: z.infer<typeof toolServersField> | undefined;
}

/** The tools of a request as functions, the choice among them, and a word about each tool that is left out. */
export function chosenTools({ tools: given = [], tool_choice: choice, mcp_servers: servers = [] }: ToolFields): {
  chosen: Omit<ChosenTools, 'warning'>;
  warnings: string[];
} {
  const hosted = given.filter((tool) => tool.type === 'hosted');
  const tools = given.flatMap((tool) => (tool.type === 'hosted' ? [] : [toolOf(tool)]));
  const types = [...new Set(hosted.map((tool) => tool.hosted))];
  const { warning, ...chosen } = choose(choice, tools, hosted, servers.length > 0 ? [...types, 'mcp_servers'] : types);
  const warnings = [
    ...types.map((type) => leftOutWarning('tools', type)),
    ...(servers.length > 0 ? [leftOutWarning('mcp_servers', 'each of them')] : []),
    ...(warning === null ? [] : [warning]),
  ];
  return { chosen, warnings };
}

function choose(
  choice: ToolFields['tool_choice'],
  tools: ChatTool[],
  hosted: readonly z.infer<typeof hostedTool>[],
  leftOut: readonly string[],
): ChosenTools {
  if (choice?.type === 'tool') {
    const { name } = choice;
    const named = tools.some((tool) => tool.name === name) ? undefined : hosted.find((tool) => tool.name === name);
    if (named !== undefined) return withoutForcedTool(tools, named.hosted);
    return { tools, toolChoice: { name }, warning: null };
  }
  const modes = { auto: 'auto', any: 'required', none: 'none' } as const;
  return chooseByMode(modes[choice?.type ?? 'auto'], { tools, leftOut });
}

function toolOf(given: z.infer<typeof customTool>): ChatTool {
  const { name, description, input_schema: parameters, input_examples: examples } = given;
  const shown = (examples ?? []).map((example) => JSON.stringify(example));
  const lines = [description ?? '', ...(shown.length > 0 ? ['Examples of its input:', ...shown] : [])];
  return { name, description: lines.filter((line) => line !== '').join('\n'), parameters };
}
