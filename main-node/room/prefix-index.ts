/** Tokens of one hash. Prefixes that are shorter are not kept; longer ones are found to the token. */
export const PREFIX_BLOCK_TOKENS = 16;
/** Most prefixes that are kept, whatever their memory. */
export const KEPT_PREFIXES_LIMIT = 1024;

/** Positions that have been run, of which others may go on. */
export interface Prefix {
  /** Of positions from 0 on; their rows exist. */
  readonly tokenIds: readonly number[];
  /** It can be forked at this length and any above. 0 without recurrent layers: at any. */
  readonly forkFrom: number;
  /** Made where a prompt went by, and so worth less than a whole sequence: these are dropped first. */
  readonly isCheckpoint: boolean;
}

/** What of a prompt need not be run. */
export interface PrefixMatch<Kept extends Prefix> {
  readonly prefix: Kept;
  /** The prompt's first tokens, which are the prefix's, too. */
  readonly positions: number;
}

/** Hash of a block of tokens behind those that gave the hash `before`. */
export type HashBlock = (before: number, tokenIds: readonly number[]) => number;

/**
 * Kept prefixes, found by hashes of their blocks, each chained to those before it. What is found is compared token by token, so that two
 * blocks of one hash are never taken for each other.
 */
export class PrefixIndex<Kept extends Prefix> {
  /** Prefixes by the hash of each of their whole blocks, and by that of their last one. */
  private readonly byBlock = new Buckets<Kept>();
  private readonly byLastBlock = new Buckets<Kept>();
  /** Each in the order of their last use. */
  private readonly checkpoints = new Set<Kept>();
  private readonly sequences = new Set<Kept>();

  constructor(
    private readonly limit = KEPT_PREFIXES_LIMIT,
    private readonly hashBlock: HashBlock = hashOfBlock,
  ) {}

  get size(): number {
    return this.checkpoints.size + this.sequences.size;
  }

  /** All, in the order in which they are to be dropped: checkpoints, then sequences, each the least recently used first. */
  *inDropOrder(): Generator<Kept> {
    yield* this.checkpoints;
    yield* this.sequences;
  }

  /**
   * Keeps a prefix, unless another one serves wherever it would. Returns those that are kept no more, the new one among them where it adds
   * nothing: the caller frees what they hold.
   */
  insert(prefix: Kept): Kept[] {
    const hashes = this.hashes(prefix.tokenIds);
    const last = hashes.at(-1);
    if (last === undefined) return [prefix];
    const covering = this.byBlock.of(last).find((other) => covers(other, prefix));
    if (covering !== undefined) {
      this.touch(covering);
      return [prefix];
    }
    const shorter = new Set(hashes.flatMap((hash) => this.byLastBlock.of(hash)));
    const dropped = [...shorter].filter((other) => covers(prefix, other));
    for (const other of dropped) this.remove(other);
    for (const hash of hashes) this.byBlock.add(hash, prefix);
    this.byLastBlock.add(last, prefix);
    this.kindOf(prefix).add(prefix);
    for (const other of this.inDropOrder()) {
      if (this.size <= this.limit) break;
      this.remove(other);
      dropped.push(other);
    }
    return dropped;
  }

  /** The prefix that saves the most of a prompt's first `most` tokens; null: none saves a block of it. It is not touched. */
  longest(tokenIds: readonly number[], most: number): PrefixMatch<Kept> | null {
    const hashes = this.hashes(tokenIds);
    const compared = new Set<Kept>();
    let best: PrefixMatch<Kept> | null = null;
    for (let blocks = hashes.length; blocks > 0; blocks -= 1) {
      // Those that have no more blocks in common save no more.
      if (best !== null && best.positions >= Math.min(most, (blocks + 1) * PREFIX_BLOCK_TOKENS - 1)) break;
      for (const prefix of this.byBlock.of(hashes[blocks - 1])) {
        if (compared.has(prefix)) continue;
        compared.add(prefix);
        const positions = Math.min(commonTokens(prefix.tokenIds, tokenIds), most);
        if (positions < Math.max(prefix.forkFrom, PREFIX_BLOCK_TOKENS)) continue;
        if (best === null || positions > best.positions) best = { prefix, positions };
      }
    }
    return best;
  }

  /** It has been used. */
  touch(prefix: Kept): void {
    const kind = this.kindOf(prefix);
    if (kind.delete(prefix)) kind.add(prefix);
  }

  /** Idempotent. */
  remove(prefix: Kept): void {
    if (!this.kindOf(prefix).delete(prefix)) return;
    const hashes = this.hashes(prefix.tokenIds);
    for (const hash of hashes) this.byBlock.remove(hash, prefix);
    const last = hashes.at(-1);
    if (last !== undefined) this.byLastBlock.remove(last, prefix);
  }

  private kindOf(prefix: Kept): Set<Kept> {
    return prefix.isCheckpoint ? this.checkpoints : this.sequences;
  }

  /** Of all whole blocks. */
  private hashes(tokenIds: readonly number[]): number[] {
    const hashes: number[] = [];
    for (let end = PREFIX_BLOCK_TOKENS; end <= tokenIds.length; end += PREFIX_BLOCK_TOKENS) {
      hashes.push(this.hashBlock(hashes.at(-1) ?? 0, tokenIds.slice(end - PREFIX_BLOCK_TOKENS, end)));
    }
    return hashes;
  }
}

class Buckets<Kept> {
  private readonly buckets = new Map<number, Set<Kept>>();

  of(hash: number | undefined): Kept[] {
    return [...(hash === undefined ? [] : (this.buckets.get(hash) ?? []))];
  }

  add(hash: number, kept: Kept): void {
    const bucket = this.buckets.get(hash);
    if (bucket === undefined) this.buckets.set(hash, new Set([kept]));
    else bucket.add(kept);
  }

  remove(hash: number, kept: Kept): void {
    const bucket = this.buckets.get(hash);
    if (bucket?.delete(kept) === true && bucket.size === 0) this.buckets.delete(hash);
  }
}

/** How many tokens two texts begin with alike. */
export function commonTokens(left: readonly number[], right: readonly number[]): number {
  const most = Math.min(left.length, right.length);
  let common = 0;
  while (common < most && left[common] === right[common]) common += 1;
  return common;
}

/** Whether `wide` can be forked wherever `narrow` can, for the same tokens. */
function covers(wide: Prefix, narrow: Prefix): boolean {
  const { length } = narrow.tokenIds;
  return wide.forkFrom <= narrow.forkFrom && commonTokens(wide.tokenIds, narrow.tokenIds) === length;
}

/** FNV-1a over words of 32 bits. */
function hashOfBlock(before: number, tokenIds: readonly number[]): number {
  return tokenIds.reduce((hash, id) => Math.imul(hash ^ id, 0x01000193), before ^ 0x811c9dc5);
}
