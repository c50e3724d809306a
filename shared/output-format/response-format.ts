import { OdmoeError } from '../errors/odmoe-error.js';
import type { OutputFormat } from './output-format.js';

/** Schema of any JSON object. */
export const ANY_OBJECT = '{"type":"object"}';

/**
 * `response_format` of OpenAI's API as an output format; null: any text. It is {"type":"text"}, {"type":"json_object"} or
 * {"type":"json_schema","json_schema":{"schema":{...}}}; `name`, `description` and `strict` beside the schema change nothing, as an
 * answer always follows it. `name`: of the field, for errors. Throws REQUEST_INVALID; whether the schema can be followed is for whoever
 * makes a constraint of it.
 */
export function outputFormatOf(given: unknown, name = 'response_format'): OutputFormat | null {
  if (given === null || given === undefined) return null;
  const format = objectOf(given, name);
  const { type, ...rest } = format;
  switch (type) {
    case 'text':
      refuseOthers(rest, [], name);
      return null;
    case 'json_object':
      refuseOthers(rest, [], name);
      return jsonFormat(ANY_OBJECT);
    case 'json_schema':
      refuseOthers(rest, ['json_schema'], name);
      return jsonFormat(schemaOf(format['json_schema'], `${name}.json_schema`));
    default:
      throw invalid(`${name}.type`, `${name}.type must be text, json_object or json_schema`);
  }
}

/** An answer that is JSON after a schema (a JSON text). */
export function jsonFormat(jsonSchema: string): OutputFormat {
  return { alternatives: [{ parts: [{ kind: 'jsonSchema', jsonSchema }] }] };
}

function schemaOf(given: unknown, name: string): string {
  const described = objectOf(given, name);
  refuseOthers(described, ['name', 'description', 'schema', 'strict'], name);
  const { schema } = described;
  if (typeof schema === 'object' && schema !== null && !Array.isArray(schema)) return JSON.stringify(schema);
  throw invalid(`${name}.schema`, `${name}.schema must be a JSON schema, as {"type":"object"}`);
}

function objectOf(given: unknown, name: string): Record<string, unknown> {
  if (typeof given === 'object' && given !== null && !Array.isArray(given)) return { ...given };
  throw invalid(name, `${name} must be an object`);
}

function refuseOthers(given: Record<string, unknown>, known: readonly string[], name: string): void {
  const other = Object.keys(given).find((key) => !known.includes(key));
  if (other !== undefined) throw invalid(`${name}.${other}`, `${name} has no field ${JSON.stringify(other)}`);
}

function invalid(field: string, message: string): OdmoeError {
  return new OdmoeError('REQUEST_INVALID', message, { field });
}
