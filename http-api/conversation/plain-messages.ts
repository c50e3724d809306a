import type { ChatMessage } from '../../shared/wire/messages.js';
import { isSystem, resultText } from '../../shared/language/tokenizer/conversation-changes.js';
import type { CallSyntax } from './call-syntax.js';
import type { ChatTool } from './chat-request.js';
import type { TemplateAbilities } from './template-abilities.js';
import { writtenJson } from '../requests/written-json.js';
import { type JsonProperty, jsonProperties } from '../../shared/base/json/exact-json.js';
import { literalKey } from './read-literal-call.js';

/** Writes calls and results of tools into the text of messages, if the template does not write them itself. */
export function plainMessages(
  messages: readonly ChatMessage[],
  syntax: CallSyntax,
  { calls, results }: TemplateAbilities,
): ChatMessage[] {
  const plain: ChatMessage[] = [];
  for (const message of messages) {
    const { role, toolCalls = [] } = message;
    if (!calls && toolCalls.length > 0) {
      const written = toolCalls.map((call) => writeCall(syntax, call.name, call.arguments));
      const content = [message.content, ...written].filter((text) => text !== '').join('\n');
      plain.push({ ...message, toolCalls: [], content });
    } else if (role === 'tool' && !(results && calls)) {
      const content = resultText(message.content);
      const last = plain.at(-1);
      // Templates expect alternating turns, so the results of several calls form one message.
      if (last?.role === 'user') last.content += `\n${content}`;
      else plain.push({ role: 'user', content });
    } else plain.push({ ...message });
  }
  return plain;
}

/** Describes the tools in the first system message. If the template takes no system message, the text goes into the first user message. */
export function withDescribedTools(
  messages: readonly ChatMessage[],
  tools: readonly ChatTool[],
  syntax: CallSyntax,
): ChatMessage[] {
  const description = describeTools(tools, syntax);
  const [first, ...rest] = messages;
  if (first === undefined || !isSystem(first)) return [{ role: 'system', content: description }, ...messages];
  return [{ ...first, content: `${first.content}\n\n${description}` }, ...rest];
}

/** A function in OpenAI's form, with its parameters as the client wrote them. */
export function toolJson({ name, description, parameters }: ChatTool): string {
  const head = JSON.stringify({ name, description });
  return `${head.slice(0, -1)},"parameters":${writtenJson(parameters)}}`;
}

function describeTools(tools: readonly ChatTool[], syntax: CallSyntax): string {
  const lines = tools.map(toolJson);
  return [
    'These functions can be called. Each line is the JSON of one: its name, what it does, and the JSON schema of its arguments.',
    ...lines,
    'A call is written like this, with the name of the function and its arguments in place of NAME, KEY and VALUE:',
    writeCall(syntax, 'NAME', '{"KEY": "VALUE"}'),
    'The result is in the message that follows. Call a function only if the answer needs it; otherwise answer with plain text.',
  ].join('\n');
}

/** A call in the model's own form, for prompts of templates that do not write calls. `args`: a JSON object. */
export function writeCall({ section, call, body }: CallSyntax, name: string, args: string): string {
  const list = 'list' in body && body.list;
  const begin = `${section.begin}${list ? '[' : ''}${call.begin}`;
  const end = `${call.end}${list ? ']' : ''}${section.end}`;
  const written = args === '' ? '{}' : args;
  switch (body.kind) {
    case 'object':
      return `${begin}{"name": ${JSON.stringify(name)}, "${body.argumentsKey}": ${written}}${end}`;
    case 'named':
      return `${begin}${body.prefix}${name}${body.numbered ? ':0' : ''}${body.between}${written}${body.after}${end}`;
    case 'keyed': {
      const line = body.ownLines ? '\n' : '';
      const values = propertiesOf(written).map(({ key, value, text: json }) => {
        const text = typeof value === 'string' ? value : json;
        return `${body.key.begin}${key}${body.key.end}${body.value.begin}${line}${text}${line}${body.value.end}`;
      });
      return `${begin}${body.name.begin}${name}${body.name.end}${values.join('')}${body.after}${end}`;
    }
    case 'literal': {
      const values = propertiesOf(written).map(({ key, value, text: json }) => {
        const text = typeof value === 'string' && body.quote !== '"' ? body.quote + value + body.quote : json;
        return `${literalKey(key)}${body.assign}${text}`;
      });
      const { arguments: around } = body;
      return `${begin}${body.prefix}${name}${around.begin}${values.join(', ')}${around.end}${end}`;
    }
  }
}

/** The properties of the arguments. Arguments that are no object have none. */
function propertiesOf(args: string): JsonProperty[] {
  return jsonProperties(args) ?? [];
}
