import { modelUnknown } from '../fields/model-field.js';

const DEFAULT_TAG = 'latest';

/** The name with a tag, as Ollama lists models. */
export function taggedName(name: string): string {
  return name.includes(':') ? name : `${name}:${DEFAULT_TAG}`;
}

/** Throws MODEL_UNKNOWN for any other name than the served model's, with or without the tag. */
export function requireTaggedModel(asked: string, served: string): void {
  if (taggedName(asked) !== taggedName(served)) throw modelUnknown(asked, taggedName(served));
}
