import { OdmoeError } from '../../../shared/errors/odmoe-error.js';

const DEFAULT_TAG = 'latest';

/** The name with a tag, as Ollama lists models. */
export function taggedName(name: string): string {
  return name.includes(':') ? name : `${name}:${DEFAULT_TAG}`;
}

/** Throws MODEL_UNKNOWN for any other name than the served model's, with or without the tag. */
export function requireServedModel(asked: string, served: string): void {
  if (taggedName(asked) === taggedName(served)) return;
  throw new OdmoeError(
    'MODEL_UNKNOWN',
    `model ${JSON.stringify(asked.slice(0, 100))} is not served here; ${JSON.stringify(taggedName(served))} is`,
    { field: 'model' },
  );
}
