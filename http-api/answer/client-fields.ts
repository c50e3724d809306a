import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** Maps a field of GenerateRequest (proto/odmoe/v1) to the client's field from which it was made. */
export type ClientFields = Readonly<Record<string, string>>;

const SAMPLING = 'sampling.';

/**
 * Returns the error of a request with the field's name as the client wrote it. A field of a list is named as a whole. A field that is not in
 * `fields` keeps its name. The keys of `fields` are names of GenerateRequest (`text`, `max_tokens`); those of its sampling lack "sampling.".
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
