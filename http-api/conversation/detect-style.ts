import * as syntaxes from './call-syntax.js';
import { callMarkers, type CallSyntax } from './call-syntax.js';
import { reasoningStyleOf, type ReasoningStyle } from './reasoning-style.js';

/** The form in which a model writes answers, found from its chat template and its special tokens. */
export interface ChatStyle {
  /** The form of calls; null: no known form. */
  calls: CallSyntax | null;
  reasoning: ReasoningStyle | null;
  /** True: its answers are messages in channels (gpt-oss). */
  harmony: boolean;
  /** Names of the special tokens. */
  specialNames: ReadonlySet<string>;
  /** Variables that the template reads. */
  variables: ReadonlySet<string>;
}

/** Texts that occur in one form of calls only; the more specific ones come first. */
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

/** Tells whether markers are special tokens. An answer's text shows special tokens only on request. */
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

/** Names in a template's code that are not properties of another name. */
function templateVariables(source: string): Set<string> {
  const names = new Set<string>();
  for (const [code] of source.matchAll(/\{[{%][\s\S]*?[%}]\}/g)) {
    const bare = code.replace(/'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"/g, "''");
    for (const match of bare.matchAll(/(?<![.\w])[A-Za-z_]\w*/g)) names.add(match[0]);
  }
  return names;
}
