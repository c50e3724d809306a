import { createHash } from 'node:crypto';

/** Positions whose rows one file holds. */
export const STORED_BLOCK_POSITIONS = 64;

/** Bytes of a digest that stand in a name. */
const DIGEST_LENGTH = 64;
export const BLOCK_NAME = new RegExp(`^[0-9a-f]{${DIGEST_LENGTH}}$`);

/**
 * The name of a client in the store: a digest with the store's own salt. It says neither the key nor main's short name of it, and differs between
 * stores.
 */
export function ownerOf(client: string, salt: string): string {
  return createHash('sha256').update(`${salt} owner ${client}`).digest('hex');
}

/**
 * Names of the stored blocks that the first tokens of a text have, one for each STORED_BLOCK_POSITIONS of its first `positions`. Each name follows
 * from the owner and from all tokens up to its block's end, so that blocks of two owners never have one name.
 */
export function blockNames(owner: string, salt: string, tokenIds: readonly number[], positions: number): string[] {
  const names: string[] = [];
  for (let end = STORED_BLOCK_POSITIONS; end <= Math.min(positions, tokenIds.length); end += STORED_BLOCK_POSITIONS)
    names.push(nameOf(owner, salt, names.at(-1) ?? '', tokenIds.slice(end - STORED_BLOCK_POSITIONS, end)));
  return names;
}

/** `parent`: the name of the block before it; empty: it is the first one. */
export function nameOf(owner: string, salt: string, parent: string, tokenIds: readonly number[]): string {
  const tokens = Int32Array.from(tokenIds);
  return createHash('sha256').update(`${salt} block ${owner} ${parent} `).update(tokens).digest('hex');
}
