import * as syntaxes from './call-syntax.js';
import { callMarkers, type CallSyntax } from './call-syntax.js';
import { reasoningStyleOf, type ReasoningStyle } from './reasoning-style.js';

/** How a model writes answers, as its chat template and its special tokens tell. */
export interface ChatStyle {
  /** How it writes calls; null: in no form that is known. */
  calls: CallSyntax | null;
  reasoning: ReasoningStyle | null;
  /** Its answers are messages in channels (gpt-oss). */
  harmony: boolean;
  /** Names of the special tokens. */
  specialNames: ReadonlySet<string>;
  /** Variables that the template takes. */
  variables: ReadonlySet<string>;
}

/** Texts that only one form of calls has, the more particular ones first. */
const SIGNS: readonly (readonly [sign: string, syntax: CallSyntax])[] = [
  ['<|tool_call>', syntaxes.GEMMA],
  ['<minimax:tool_call>', syntaxes.MINIMAX],
  ['<｜tool▁call▁begin｜>', syntaxes.DEEPSEEK_V31],
  ['<|tool_call_argument_begin|>', syntaxes.KIMI],
  ['[ARGS]', syntaxes.MISTRAL_NAMED],
  ['[TOOL_CALLS]', syntaxes.MISTRAL],
  ['<|tool_call_start|>', syntaxes.LFM2],
  ['<|tool_list_start|>', syntaxes.LFM2],
  ['<arg_key>', syntaxes.GLM],
  ['<function=', syntaxes.QWEN_XML],
  ['<tool_calls>', syntaxes.HUNYUAN],
  ['<tool_call>', syntaxes.HERMES],
  ['<|tool_call|>', syntaxes.GRANITE],
  ['<|python_tag|>', syntaxes.LLAMA],
];

/** `source`: the chat template's text. `specialNames`: names of the tokenizer's special tokens. */
export function detectStyle(source: string, specialNames: ReadonlySet<string>): ChatStyle {
  const harmony = source.includes('<|channel|>') && source.includes('<|message|>');
  const calls = harmony ? null : callSyntaxOf(source, specialNames);
  const reasoning = harmony ? null : reasoningStyleOf(source, specialNames);
  return { calls, reasoning, harmony, specialNames, variables: templateVariables(source) };
}

/** Whether markers are special tokens, which an answer's text leaves out unless it is asked for them. */
export function hasSpecialMarkers({ calls, reasoning, harmony, specialNames }: ChatStyle): boolean {
  if (harmony) return true;
  const markers = [
    ...(calls === null ? [] : callMarkers(calls)),
    ...(reasoning === null ? [] : [reasoning.begin.trim(), reasoning.end]),
  ];
  const names = [...specialNames];
  return markers.some((marker) => names.some((name) => marker.startsWith(name)));
}

function callSyntaxOf(source: string, specialNames: ReadonlySet<string>): CallSyntax | null {
  const inTemplate = SIGNS.find(([sign]) => source.includes(sign));
  const [, found] = inTemplate ?? SIGNS.find(([sign]) => specialNames.has(sign)) ?? [];
  if (found === syntaxes.DEEPSEEK_V31 && source.includes('```json')) return syntaxes.DEEPSEEK_V3;
  return found ?? null;
}

/** Names in a template's code that are no members of something. */
function templateVariables(source: string): Set<string> {
  const names = new Set<string>();
  for (const [code] of source.matchAll(/\{[{%][\s\S]*?[%}]\}/g)) {
    const bare = code.replace(/'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"/g, "''");
    for (const match of bare.matchAll(/(?<![.\w])[A-Za-z_]\w*/g)) names.add(match[0]);
  }
  return names;
}
