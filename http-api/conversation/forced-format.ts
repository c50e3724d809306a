import { jsonProperties } from '../../shared/base/json/exact-json.js';
import type { OutputFormat, OutputPart, OutputSequence } from '../../shared/wire/messages.js';
import { isText } from './argument-text.js';
import type { CallSyntax, KeyedBody, LiteralBody } from './call-syntax.js';
import type { ChatTool } from './chat-request.js';
import type { ChatStyle } from './detect-style.js';
import { writtenJson } from '../requests/written-json.js';
import { literalKey } from './read-literal-call.js';

/** Most optional arguments for which each selection is a form of the call, where arguments are written one by one. */
const FREE_ARGUMENTS_LIMIT = 5;
/** Most forms of all functions together, and most parts of them. Above these, fewer selections of arguments are offered. */
const FORMS_LIMIT = 128;
const FORM_PARTS_LIMIT = 448;

const literal = (text: string): OutputPart => ({ kind: 'literal', literal: text });
const json = (jsonSchema: string): OutputPart => ({ kind: 'jsonSchema', jsonSchema });

/** A string that is written as it is, up to the text that ends it. */
const plainText = (jsonSchema: string, end: string): OutputPart => ({
  kind: 'schemaText',
  schemaText: { jsonSchema, without: end },
});

/** The reasoning that may come before the required form of the answer. */
export type ThinkingState =
  /** The prompt has opened the reasoning. */
  | 'open'
  /** The model may open the reasoning. */
  | 'free'
  /** There is no reasoning. */
  | 'none';

/** A format with one of these forms, after the model has thought. */
export function afterThinking(style: ChatStyle, thinking: ThinkingState, forms: OutputSequence[]): OutputFormat {
  if (style.harmony) return { alternatives: forms };
  const { reasoning } = style;
  if (reasoning === null || thinking === 'none') return { alternatives: forms };
  const gap = reasoning.gap === '' ? [] : [literal(reasoning.gap)];
  const close: OutputPart[] = [{ kind: 'until', until: reasoning.end }, ...gap];
  const begin = thinking === 'open' ? [] : [literal(reasoning.begin)];
  const thought = forms.map(({ parts }) => ({ parts: joinLiterals([...begin, ...close, ...parts]) }));
  return { alternatives: thinking === 'open' ? thought : [...thought, ...forms] };
}

/** The forms of an answer that is one JSON value. */
export function jsonForms(style: ChatStyle, schema: string): OutputSequence[] {
  const value: OutputPart = { kind: 'jsonSchema', jsonSchema: schema };
  if (style.harmony) return inChannel('<|channel|>final<|message|>', [value]);
  return [{ parts: [value] }];
}

/** The forms of an answer that is one call of one of the functions. */
export function callForms(style: ChatStyle, syntax: CallSyntax, tools: readonly ChatTool[]): OutputSequence[] {
  if (style.harmony) {
    return tools.flatMap((tool) => {
      const head = `<|channel|>commentary to=functions.${tool.name} <|constrain|>json<|message|>`;
      return inChannel(head, [json(argumentsSchema(tool))]);
    });
  }
  for (let free = FREE_ARGUMENTS_LIMIT; ; free--) {
    const forms = tools.flatMap((tool) => formsOf(syntax, tool, free));
    const parts = forms.reduce((sum, form) => sum + form.parts.length, 0);
    if (free === NO_CHOICE || (forms.length <= FORMS_LIMIT && parts <= FORM_PARTS_LIMIT)) return forms;
  }
}

/** The forms of a message in a channel, with or without analysis before it. */
function inChannel(head: string, parts: OutputPart[]): OutputSequence[] {
  const analysis: OutputPart[] = [literal('<|channel|>analysis<|message|>'), { kind: 'until', until: '<|end|>' }];
  return [
    { parts: [...analysis, literal(`<|start|>assistant${head}`), ...parts] },
    { parts: [literal(head), ...parts] },
  ];
}

function formsOf({ section, call, body }: CallSyntax, tool: ChatTool, free: number): OutputSequence[] {
  const list = 'list' in body && body.list;
  const begin = `${section.begin}${list ? '[' : ''}${call.begin}`;
  const end = `${call.end}${list ? ']' : ''}${section.end}`;
  switch (body.kind) {
    case 'object': {
      const head = `${begin}{"name": ${JSON.stringify(tool.name)}, "${body.argumentsKey}": `;
      return [{ parts: [literal(head), json(argumentsSchema(tool)), literal(`}${end}`)] }];
    }
    case 'named': {
      const head = `${begin}${body.prefix}${tool.name}${body.numbered ? ':0' : ''}${body.between}`;
      const parts = [literal(head), json(argumentsSchema(tool)), literal(body.after + end)];
      return [{ parts: parts.filter((part) => part.kind !== 'literal' || part.literal !== '') }];
    }
    case 'keyed':
      return argumentChoices(tool, free).map((chosen) => ({
        parts: joinLiterals(keyedParts(body, tool, chosen, begin, end)),
      }));
    case 'literal':
      return argumentChoices(tool, free).map((chosen) => ({
        parts: joinLiterals(literalParts(body, tool, chosen, begin, end)),
      }));
  }
}

/** An argument of a function. */
interface Argument {
  key: string;
  /** True: the argument can only be text. */
  isText: boolean;
  /** The JSON schema, with the definitions that its references name. */
  schema: string;
}

function keyedParts(body: KeyedBody, tool: ChatTool, chosen: Argument[], begin: string, end: string): OutputPart[] {
  const line = body.ownLines ? '\n' : '';
  const parts = chosen.flatMap(({ key, isText, schema }): OutputPart[] => {
    const value = isText ? plainText(schema, body.value.end) : json(schema);
    const head = literal(`${body.key.begin}${key}${body.key.end}${body.value.begin}${line}`);
    return [head, value, literal(`${line}${body.value.end}`)];
  });
  return [literal(`${begin}${body.name.begin}${tool.name}${body.name.end}`), ...parts, literal(body.after + end)];
}

function literalParts(body: LiteralBody, tool: ChatTool, chosen: Argument[], begin: string, end: string): OutputPart[] {
  const parts = chosen.flatMap(({ key, isText, schema }, index): OutputPart[] => {
    const head = `${index === 0 ? '' : body.list ? ', ' : ','}${literalKey(key)}${body.assign}`;
    if (body.quote === '"' || !isText) return [literal(head), json(schema)];
    return [literal(head + body.quote), plainText(schema, body.quote), literal(body.quote)];
  });
  const { arguments: around } = body;
  return [literal(`${begin}${body.prefix}${tool.name}${around.begin}`), ...parts, literal(around.end + end)];
}

/** No selection: only the required arguments are offered. */
const NO_CHOICE = -1;

/**
 * The selections of arguments that a call may have, in the schema's order. With at most `free` optional arguments, every selection of them is
 * offered; with more, two: none of them and all of them.
 */
function argumentChoices(tool: ChatTool, free: number): Argument[][] {
  const { required } = tool.parameters as { required?: unknown };
  const all = argumentsOf(tool);
  const needed = new Set<unknown>(Array.isArray(required) ? required : []);
  const optional = all.filter(({ key }) => !needed.has(key)).map(({ key }) => key);
  const least = all.filter(({ key }) => needed.has(key));
  if (free === NO_CHOICE || optional.length === 0) return [least];
  if (optional.length > free) return [least, all];
  return Array.from({ length: 1 << optional.length }, (_, choice) => {
    const left = new Set(optional.filter((_key, index) => ((choice >> index) & 1) === 0));
    return all.filter(({ key }) => !left.has(key));
  });
}

/** The arguments as the client wrote them: the digits of large numbers and the order of keys do not change. */
function argumentsOf({ parameters }: ChatTool): Argument[] {
  const { properties } = parameters as { properties?: Record<string, unknown> };
  const written = new Map((jsonProperties(writtenJson(parameters)) ?? []).map(({ key, text }) => [key, text]));
  const definitions = ['$defs', 'definitions'].flatMap((key) => {
    const text = written.get(key);
    return text === undefined ? [] : [`${JSON.stringify(key)}:${text}`];
  });
  return (jsonProperties(written.get('properties') ?? '{}') ?? []).map(({ key, text }) => {
    const schema = properties?.[key];
    return typeof schema === 'object' && schema !== null
      ? { key, isText: isText(schema), schema: withProperties(text, definitions) }
      : { key, isText: false, schema: withProperties('{}', definitions) };
  });
}

function argumentsSchema({ parameters }: ChatTool): string {
  const written = writtenJson(parameters);
  return 'type' in parameters ? written : withProperties(written, ['"type":"object"']);
}

/** The JSON object with more properties. The added ones count if both have a key. */
function withProperties(object: string, properties: readonly string[]): string {
  const own = object.trim().slice(1, -1).trim();
  return `{${[...(own === '' ? [] : [own]), ...properties].join(',')}}`;
}

function joinLiterals(parts: OutputPart[]): OutputPart[] {
  const joined: OutputPart[] = [];
  for (const part of parts) {
    const last = joined.at(-1);
    if (part.kind === 'literal' && last?.kind === 'literal')
      joined[joined.length - 1] = literal(last.literal + part.literal);
    else if (part.kind !== 'literal' || part.literal !== '') joined.push(part);
  }
  return joined;
}
