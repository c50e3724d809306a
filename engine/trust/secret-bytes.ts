import type { Runtime } from '../../shared/base/runtime/runtime.js';

/** Chance that nobody can guess where the runtime is a real one: its numbers come from the system's generator for keys. */
export type Chance = Pick<Runtime, 'randomInt'>;

/** Random bytes for a secret or a nonce. */
export function secretBytes(chance: Chance, count: number): Buffer {
  return Buffer.from(Array.from({ length: count }, () => chance.randomInt(256)));
}
