import { formatInvalid } from '../../shared/wire/output-format.js';
import type { JsonSchema, JsonType, TypedSchema } from './json-schema.js';
import { hasNumber } from './number-machine.js';

/**
 * The schema without the types whose keywords leave no value. Throws REQUEST_INVALID where no type is left. What only references show is found
 * when the grammar is made.
 */
export function withoutContradictions(schema: TypedSchema, where: string): JsonSchema {
  const contradictions = [...schema.types].map((type) => ({ type, contradiction: contradictionOf(schema, type) }));
  const types = contradictions.filter(({ contradiction }) => contradiction === null).map(({ type }) => type);
  if (types.length > 0) return { ...schema, types: new Set(types) };
  const [first] = contradictions;
  throw formatInvalid(`no value is taken at ${where}: ${first?.contradiction ?? 'it has no type'}; correct the schema`);
}

function contradictionOf({ number, string, array, object }: TypedSchema, type: JsonType): string | null {
  switch (type) {
    case 'number':
      return hasNumber(number) ? null : 'no number lies within its bounds';
    case 'string':
      return string.least > string.most ? `minLength ${string.least} is above maxLength ${string.most}` : null;
    case 'array':
      return array.least > array.most ? `minItems ${array.least} is above maxItems ${array.most}` : null;
    case 'object': {
      const missing = [...object.required].find(
        (key) => (object.properties.get(key) ?? object.others).kind === 'never',
      );
      return missing === undefined
        ? null
        : `the key ${JSON.stringify(missing.slice(0, 60))} is required and not allowed`;
    }
    case 'boolean':
    case 'null':
      return null;
  }
}
