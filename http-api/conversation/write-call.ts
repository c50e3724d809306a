import { type JsonMember, jsonMembers } from '../../shared/base/json/exact-json.js';
import type { CallSyntax } from './call-syntax.js';
import { literalKey } from './read-literal-call.js';

/** A call as the model would write it, for prompts of templates that do not write calls themselves. `args`: a JSON object. */
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
      const values = membersOf(written).map(({ key, value, text: json }) => {
        const text = typeof value === 'string' ? value : json;
        return `${body.key.begin}${key}${body.key.end}${body.value.begin}${line}${text}${line}${body.value.end}`;
      });
      return `${begin}${body.name.begin}${name}${body.name.end}${values.join('')}${body.after}${end}`;
    }
    case 'literal': {
      const values = membersOf(written).map(({ key, value, text: json }) => {
        const text = typeof value === 'string' && body.quote !== '"' ? body.quote + value + body.quote : json;
        return `${literalKey(key)}${body.assign}${text}`;
      });
      const { arguments: around } = body;
      return `${begin}${body.prefix}${name}${around.begin}${values.join(', ')}${around.end}${end}`;
    }
  }
}

/** Of arguments that are no object nothing can be written argument by argument. */
function membersOf(args: string): JsonMember[] {
  return jsonMembers(args) ?? [];
}
