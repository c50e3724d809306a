/** Tools that only a service runs. They are left out of prompts, and answers name them in `warnings`. */
import type { ChatTool, ToolChoice } from './chat-request.js';

/** The functions among which the model chooses, and how. `warning`: a wish that cannot be kept. */
export interface ChosenTools {
  tools: ChatTool[];
  toolChoice: ToolChoice;
  warning: string | null;
}

/** Most characters of a type that a warning or an error shows. */
const TYPE_SHOWN_LIMIT = 40;

/** The beginning of a type that a client wrote. */
export function shownType(type: string): string {
  return type.slice(0, TYPE_SHOWN_LIMIT);
}

/** `field`: of the request. `type`: the tool's, or that of a record of its calls. */
export function leftOutWarning(field: string, type: string): string {
  return `${field}: ${shownType(type)} is left out, because such tools are not run here`;
}

/** The model answers as it likes where a tool that is left out was to be called. */
export function withoutForcedTool(tools: ChatTool[], type: string): ChosenTools {
  const warning = `tool_choice: a call of ${shownType(type)} cannot be forced, because such tools are not run here; the model answers without it`;
  return { tools, toolChoice: 'auto', warning };
}

/** `leftOut`: types of the tools that are left out. */
export function chooseByMode(
  mode: 'none' | 'auto' | 'required',
  { tools, leftOut }: { tools: ChatTool[]; leftOut: readonly string[] },
): ChosenTools {
  const [hosted] = leftOut;
  if (mode === 'required' && tools.length === 0 && hosted !== undefined) return withoutForcedTool(tools, hosted);
  return { tools, toolChoice: mode, warning: null };
}
