import { type Chance, secretBytes } from './secret-bytes.js';

const KEY_BYTES = 24;

/** An API key that nobody can guess, without characters that an address of a page would need to escape. */
export function randomApiKey(chance: Chance): string {
  return secretBytes(chance, KEY_BYTES).toString('base64url');
}
