/** Most blocks of a store, whatever their bytes: each has a file, and an entry in memory. */
export const STORED_BLOCKS_LIMIT = 65_536;

/** What main knows of a stored block without reading its rows. */
export interface BlockEntry {
  readonly name: string;
  /** The name of the block with the positions before it; empty: it has none before it. */
  readonly parent: string;
  /** Bytes of its file. */
  readonly bytes: number;
  /** Workers that took part in its rows. */
  readonly workers: readonly string[];
}

/** A block that an earlier start of main has left, with the time of its last use. */
export interface FoundBlock extends BlockEntry {
  /** Milliseconds since 1970. */
  readonly usedMs: number;
}

/**
 * The blocks of a store in the order of their last use. A block is of use only together with all blocks before it: so a use of a block counts as a
 * later use of its parent, the block that goes first is nobody's parent, and a block without its parent goes, too.
 */
export class BlockIndex {
  /** By name, the least recently used first. */
  private readonly blocks = new Map<string, BlockEntry>();
  private readonly children = new Map<string, Set<string>>();
  private ofBlocks = 0;
  private unfinished = 0;

  constructor(
    private readonly limitBytes: number,
    private readonly limitBlocks = STORED_BLOCKS_LIMIT,
  ) {}

  get size(): number {
    return this.blocks.size;
  }

  /** Bytes of all blocks, and of those that are being written. */
  get bytes(): number {
    return this.ofBlocks + this.unfinished;
  }

  has(name: string): boolean {
    return this.blocks.has(name);
  }

  /** The longest beginning of the chain that is stored. */
  stored(chain: readonly string[]): string[] {
    const missing = chain.findIndex((name) => !this.blocks.has(name));
    return missing < 0 ? [...chain] : chain.slice(0, missing);
  }

  /** The stored beginning of a chain has been used. */
  touch(chain: readonly string[]): void {
    for (const name of this.stored(chain).reverse()) {
      const block = this.blocks.get(name);
      if (block === undefined) continue;
      this.blocks.delete(name);
      this.blocks.set(name, block);
    }
  }

  /**
   * Takes over the blocks that lie in the store at a start. Returns the names of those that are not of use, because a block before them is missing
   * or there is no room for them.
   */
  takeOver(found: readonly FoundBlock[]): string[] {
    const byName = new Map(found.map((block) => [block.name, block]));
    const depths = new Map<string, number>();
    for (const { name } of found) noteDepth(name, byName, depths);
    const whole = found.filter(({ name }) => depths.has(name));
    const usedMs = new Map(whole.map((block) => [block.name, block.usedMs]));
    const depthOf = ({ name }: BlockEntry): number => depths.get(name) ?? 0;
    for (const { name, parent } of [...whole].sort((left, right) => depthOf(right) - depthOf(left)))
      if (parent !== '') usedMs.set(parent, Math.max(usedMs.get(parent) ?? 0, usedMs.get(name) ?? 0));
    const byUse = [...whole].sort(
      (left, right) =>
        (usedMs.get(left.name) ?? 0) - (usedMs.get(right.name) ?? 0) ||
        depthOf(right) - depthOf(left) ||
        (left.name < right.name ? -1 : 1),
    );
    for (const block of byUse) this.insert(block);
    return [...found.filter(({ name }) => !depths.has(name)).map(({ name }) => name), ...this.shrink(0, [])];
  }

  /**
   * Makes room for a block of so many bytes behind this chain, and counts these bytes from now on. Returns the names of the blocks that go for it;
   * null: there is no room without a block of the chain. add() or giveUp() must follow.
   */
  reserve(bytes: number, chain: readonly string[]): string[] | null {
    if (bytes > this.limitBytes) return null;
    const kept = new Set(chain);
    if (this.bytesOf(kept) + this.unfinished + bytes > this.limitBytes || kept.size + 1 > this.limitBlocks) return null;
    const gone = this.shrink(bytes, chain);
    this.unfinished += bytes;
    return gone;
  }

  /** The block for which bytes were reserved is there. Its chain counts as used. */
  add(block: BlockEntry, chain: readonly string[]): void {
    this.giveUp(block.bytes);
    this.insert(block);
    this.touch(chain);
  }

  /** The block for which these bytes were reserved does not come. */
  giveUp(bytes: number): void {
    this.unfinished -= bytes;
  }

  /** Removes a block and all that lie behind it. Returns their names; none if it is not there. */
  remove(name: string): string[] {
    const block = this.blocks.get(name);
    if (block === undefined) return [];
    const behind = [...(this.children.get(name) ?? [])].flatMap((child) => this.remove(child));
    this.blocks.delete(name);
    this.ofBlocks -= block.bytes;
    const siblings = this.children.get(block.parent);
    if (siblings?.delete(name) === true && siblings.size === 0) this.children.delete(block.parent);
    return [...behind, name];
  }

  /** Removes the blocks that the worker took part in, and all that lie behind them. Returns their names. */
  distrust(workerId: string): string[] {
    const tainted = [...this.blocks.values()].filter(({ workers }) => workers.includes(workerId));
    return tainted.flatMap(({ name }) => this.remove(name));
  }

  private insert({ name, parent, bytes, workers }: BlockEntry): void {
    this.blocks.set(name, { name, parent, bytes, workers });
    this.ofBlocks += bytes;
    if (parent === '') return;
    const siblings = this.children.get(parent);
    if (siblings === undefined) this.children.set(parent, new Set([name]));
    else siblings.add(name);
  }

  /** Lets the least recently used blocks go until so many bytes have room. */
  private shrink(bytes: number, chain: readonly string[]): string[] {
    this.touch(chain);
    const gone: string[] = [];
    const spare = bytes > 0 ? 1 : 0;
    for (const name of this.blocks.keys()) {
      if (this.bytes + bytes <= this.limitBytes && this.blocks.size + spare <= this.limitBlocks) break;
      gone.push(...this.remove(name));
    }
    return gone;
  }

  private bytesOf(names: Iterable<string>): number {
    let bytes = 0;
    for (const name of names) bytes += this.blocks.get(name)?.bytes ?? 0;
    return bytes;
  }
}

/** Notes the number of blocks before a block, and before each of these; notes nothing where one of them is missing. */
function noteDepth(name: string, byName: ReadonlyMap<string, BlockEntry>, depths: Map<string, number>): void {
  const unknown: string[] = [];
  const seen = new Set<string>();
  let at = name;
  while (at !== '' && !depths.has(at)) {
    const block = byName.get(at);
    if (block === undefined || seen.has(at)) return;
    seen.add(at);
    unknown.push(at);
    at = block.parent;
  }
  let depth = at === '' ? 0 : (depths.get(at) ?? 0) + 1;
  for (const known of unknown.reverse()) depths.set(known, depth++);
}
