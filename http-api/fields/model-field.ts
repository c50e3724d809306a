import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { HttpApiContext } from '../http-api-context.js';

/** Most characters of a name that a message repeats. */
const NAME_SHOWN_LIMIT = 100;

/** Throws MODEL_UNKNOWN if the name is not the served model's. */
export function requireServedModel(name: string | undefined, { model }: Pick<HttpApiContext, 'model'>): void {
  if (name !== undefined && name !== model.name) throw modelUnknown(name, model.name);
}

/** `served`: the name that the message suggests. */
export function modelUnknown(name: string, served: string): OdmoeError {
  const shown = JSON.stringify(name.slice(0, NAME_SHOWN_LIMIT));
  const message = `the model ${shown} is not served here; ask for ${JSON.stringify(served)}`;
  return new OdmoeError('MODEL_UNKNOWN', message, { field: 'model' });
}
