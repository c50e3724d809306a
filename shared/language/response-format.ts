import { OdmoeError } from '../base/errors/odmoe-error.js';
import { type JsonProperty, jsonProperties } from '../base/json/exact-json.js';
import type { OutputFormat } from '../wire/messages.js';

/** Schema of any JSON object. */
export const ANY_OBJECT = '{"type":"object"}';

/** Name of the API's field, for errors. */
const FIELD = 'response_format';

/**
 * Converts the JSON text of a `response_format` of OpenAI's API to an output format; null: any text. It is {"type":"text"},
 * {"type":"json_object"} or {"type":"json_schema","json_schema":{"schema":{...}}}. `name`, `description` and `strict` beside the schema change
 * nothing, because an answer always follows the schema. The schema stays unchanged text. Throws REQUEST_INVALID. The code that makes a
 * constraint of the schema checks that it can be followed.
 */
export function outputFormatOf(given: string): OutputFormat | null {
  const format = propertiesOf(given, FIELD);
  const type = format.get('type')?.value;
  switch (typeof type === 'string' ? type : '') {
    case 'text':
      refuseOthers(format, ['type'], FIELD);
      return null;
    case 'json_object':
      refuseOthers(format, ['type'], FIELD);
      return jsonFormat(ANY_OBJECT);
    case 'json_schema':
      refuseOthers(format, ['type', 'json_schema'], FIELD);
      return jsonFormat(schemaOf(format.get('json_schema')?.text ?? '', `${FIELD}.json_schema`));
    default:
      throw invalid(`${FIELD}.type`, `${FIELD}.type must be text, json_object or json_schema`);
  }
}

/** The format of an answer that is JSON and follows a schema (a JSON text). */
export function jsonFormat(jsonSchema: string): OutputFormat {
  return { alternatives: [{ parts: [{ kind: 'jsonSchema', jsonSchema }] }] };
}

function schemaOf(given: string, name: string): string {
  const described = propertiesOf(given, name);
  refuseOthers(described, ['name', 'description', 'schema', 'strict'], name);
  const schema = described.get('schema');
  if (schema?.value instanceof Map) return schema.text;
  throw invalid(`${name}.schema`, `${name}.schema must be a JSON schema, as {"type":"object"}`);
}

function propertiesOf(given: string, name: string): ReadonlyMap<string, JsonProperty> {
  const properties = jsonProperties(given);
  if (properties === null) throw invalid(name, `${name} must be an object`);
  return new Map(properties.map((property) => [property.key, property]));
}

function refuseOthers(given: ReadonlyMap<string, JsonProperty>, known: readonly string[], name: string): void {
  const other = [...given.keys()].find((key) => !known.includes(key));
  if (other !== undefined) throw invalid(`${name}.${other}`, `${name} has no field ${JSON.stringify(other)}`);
}

function invalid(field: string, message: string): OdmoeError {
  return new OdmoeError('REQUEST_INVALID', message, { field });
}
