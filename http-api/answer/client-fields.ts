import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** By a field of GenerateRequest (proto/odmoe/v1) the client's own field that it was made of. */
export type ClientFields = Readonly<Record<string, string>>;

const SAMPLING = 'sampling.';

/**
 * An error of a request, with the field as the client named it: a list's field as a whole, and what is in no list as it is. `text`,
 * `max_tokens` and so on are the names of GenerateRequest; fields of its sampling are listed without "sampling.".
 */
export function errorForClient(thrown: unknown, fields: ClientFields): unknown {
  if (!(thrown instanceof OdmoeError) || thrown.field === null) return thrown;
  const field = clientField(thrown.field, fields);
  if (field === thrown.field) return thrown;
  return new OdmoeError(thrown.code, thrown.message, { cause: thrown, field });
}

function clientField(field: string, fields: ClientFields): string {
  const isSampling = field.startsWith(SAMPLING);
  const inner = isSampling ? field.slice(SAMPLING.length) : field;
  const [name = inner] = inner.split(/[[.]/, 1);
  if (Object.hasOwn(fields, name)) return fields[name] ?? name;
  return isSampling ? name : field;
}
