import { parsedJson } from './parsed-json.js';

/** True if the text is exactly one JSON value. */
export function isJson(text: string): boolean {
  return parsedJson(text) !== undefined;
}
