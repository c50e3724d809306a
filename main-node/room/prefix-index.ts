/** Tokens of one hash block. Shorter prefixes are not retained; in longer ones the exact number of common tokens is found. */
export const HASH_BLOCK_TOKENS = 16;
/** Most prefixes that are retained, whatever their memory. */
export const RETAINED_PREFIXES_LIMIT = 1024;

/** Positions that have run, from which other sequences may go on. */
export interface Prefix {
  /** Tokens of the positions from 0 on, whose rows exist. */
  readonly tokenIds: readonly number[];
  /** The prefix can be forked at this length and at any longer one. 0, for models without recurrent layers: at any length. */
  readonly forkFrom: number;
  /** A fork that was taken while a prompt ran on, and is worth less than a whole sequence: such prefixes are dropped first. */
  readonly isSavedFork: boolean;
}

/** The part of a prompt that need not run. */
export interface PrefixMatch<Retained extends Prefix> {
  readonly prefix: Retained;
  /** Number of the prompt's first tokens that the prefix has, too. */
  readonly positions: number;
}

/** Computes the hash of a hash block. `before`: the hash of the tokens before it. */
export type HashOfTokens = (before: number, tokenIds: readonly number[]) => number;

/**
 * Retained prefixes, found by hashes of their hash blocks, each chained to the hash blocks before it. A prefix that is found is compared token by
 * token, so that two hash blocks with the same hash are never confused.
 */
export class PrefixIndex<Retained extends Prefix> {
  /** Prefixes by the hash of each of their whole hash blocks, and by that of their last one. */
  private readonly byHashBlock = new Buckets<Retained>();
  private readonly byLastHashBlock = new Buckets<Retained>();
  /** Both in the order of last use. */
  private readonly savedForks = new Set<Retained>();
  private readonly sequences = new Set<Retained>();

  constructor(
    private readonly limit = RETAINED_PREFIXES_LIMIT,
    private readonly hashOf: HashOfTokens = hashOfTokens,
  ) {}

  get size(): number {
    return this.savedForks.size + this.sequences.size;
  }

  /** All prefixes in the order in which they are to be dropped: saved forks, then sequences, in both the least recently used first. */
  *inDropOrder(): Generator<Retained> {
    yield* this.savedForks;
    yield* this.sequences;
  }

  /**
   * Retains a prefix, unless another one serves in every case that it would. Returns the prefixes that are dropped, including the new one if it adds
   * nothing: the caller frees what they hold.
   */
  insert(prefix: Retained): Retained[] {
    const hashes = this.hashes(prefix.tokenIds);
    const last = hashes.at(-1);
    if (last === undefined) return [prefix];
    const covering = this.byHashBlock.of(last).find((other) => covers(other, prefix));
    if (covering !== undefined) {
      this.touch(covering);
      return [prefix];
    }
    const shorter = new Set(hashes.flatMap((hash) => this.byLastHashBlock.of(hash)));
    const dropped = [...shorter].filter((other) => covers(prefix, other));
    for (const other of dropped) this.remove(other);
    for (const hash of hashes) this.byHashBlock.add(hash, prefix);
    this.byLastHashBlock.add(last, prefix);
    this.kindOf(prefix).add(prefix);
    for (const other of this.inDropOrder()) {
      if (this.size <= this.limit) break;
      this.remove(other);
      dropped.push(other);
    }
    return dropped;
  }

  /** The prefix that saves the most of a prompt's first `most` tokens; null: none saves a hash block. This does not count as a use. */
  longest(tokenIds: readonly number[], most: number): PrefixMatch<Retained> | null {
    const hashes = this.hashes(tokenIds);
    const compared = new Set<Retained>();
    let best: PrefixMatch<Retained> | null = null;
    for (let hashBlocks = hashes.length; hashBlocks > 0; hashBlocks -= 1) {
      // Prefixes with no more common hash blocks than this save no more tokens.
      if (best !== null && best.positions >= Math.min(most, (hashBlocks + 1) * HASH_BLOCK_TOKENS - 1)) break;
      for (const prefix of this.byHashBlock.of(hashes[hashBlocks - 1])) {
        if (compared.has(prefix)) continue;
        compared.add(prefix);
        const positions = Math.min(commonTokens(prefix.tokenIds, tokenIds), most);
        if (positions < Math.max(prefix.forkFrom, HASH_BLOCK_TOKENS)) continue;
        if (best === null || positions > best.positions) best = { prefix, positions };
      }
    }
    return best;
  }

  /** The prefix has been used. */
  touch(prefix: Retained): void {
    const kind = this.kindOf(prefix);
    if (kind.delete(prefix)) kind.add(prefix);
  }

  /** Idempotent. */
  remove(prefix: Retained): void {
    if (!this.kindOf(prefix).delete(prefix)) return;
    const hashes = this.hashes(prefix.tokenIds);
    for (const hash of hashes) this.byHashBlock.remove(hash, prefix);
    const last = hashes.at(-1);
    if (last !== undefined) this.byLastHashBlock.remove(last, prefix);
  }

  private kindOf(prefix: Retained): Set<Retained> {
    return prefix.isSavedFork ? this.savedForks : this.sequences;
  }

  /** Hashes of all whole hash blocks. */
  private hashes(tokenIds: readonly number[]): number[] {
    const hashes: number[] = [];
    for (let end = HASH_BLOCK_TOKENS; end <= tokenIds.length; end += HASH_BLOCK_TOKENS) {
      hashes.push(this.hashOf(hashes.at(-1) ?? 0, tokenIds.slice(end - HASH_BLOCK_TOKENS, end)));
    }
    return hashes;
  }
}

class Buckets<Retained> {
  private readonly buckets = new Map<number, Set<Retained>>();

  of(hash: number | undefined): Retained[] {
    return [...(hash === undefined ? [] : (this.buckets.get(hash) ?? []))];
  }

  add(hash: number, retained: Retained): void {
    const bucket = this.buckets.get(hash);
    if (bucket === undefined) this.buckets.set(hash, new Set([retained]));
    else bucket.add(retained);
  }

  remove(hash: number, retained: Retained): void {
    const bucket = this.buckets.get(hash);
    if (bucket?.delete(retained) === true && bucket.size === 0) this.buckets.delete(hash);
  }
}

/** Number of tokens that both texts begin with. */
export function commonTokens(left: readonly number[], right: readonly number[]): number {
  const most = Math.min(left.length, right.length);
  let common = 0;
  while (common < most && left[common] === right[common]) common += 1;
  return common;
}

/** True if `wide` can be forked wherever `narrow` can, for the same tokens. */
function covers(wide: Prefix, narrow: Prefix): boolean {
  const { length } = narrow.tokenIds;
  return wide.forkFrom <= narrow.forkFrom && commonTokens(wide.tokenIds, narrow.tokenIds) === length;
}

/** FNV-1a over words of 32 bits. */
function hashOfTokens(before: number, tokenIds: readonly number[]): number {
  return tokenIds.reduce((hash, id) => Math.imul(hash ^ id, 0x01000193), before ^ 0x811c9dc5);
}
