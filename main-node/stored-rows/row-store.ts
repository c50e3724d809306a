import type { Sequence } from '../../native/index.js';
import type { StoreFiles } from '../../engine/environment/store-files.js';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { runInSteps } from '../../shared/base/runtime/work-steps.js';
import type { RowProvenance } from '../pass/pass-member.js';
import type { BlockIndex } from './block-index.js';
import { blockNames, ownerOf, STORED_BLOCK_POSITIONS } from './block-names.js';
import { checkedRows, encodedBlock, type StoredRows, type StoreKey } from './block-work.js';
import { PositionTime } from './plan-read.js';

/** Most sequences whose rows wait to be written; the one that has waited longest goes for a new one. */
const WAITING_LIMIT = 4;
/** After a failed write, nothing is written for so long: the disk may be full. */
const PAUSE_MS = 60_000;
/** Longest time for which the end of main waits until rows are written. */
export const CLOSE_WAIT_MS = 5000;
export interface RowStoreOptions {
  readonly files: StoreFiles;
  readonly index: BlockIndex;
  readonly key: StoreKey;
  /** Bytes of the rows of a block in each layer. */
  readonly layerBytes: readonly number[];
  readonly runtime: Pick<Runtime, 'nowMs' | 'wallMs' | 'nextTurn' | 'sleep'>;
  readonly log: Logger;
}

/** A sequence that has ended, and whose rows are to be stored. */
export interface RowsToStore {
  /** The request. */
  readonly id: number;
  readonly client: string;
  readonly sequence: Pick<Sequence, 'fork' | 'length'>;
  readonly tokenIds: readonly number[];
  readonly provenance: RowProvenance;
}

export interface RowStoreCounts {
  /** Bytes of all files, and of those that are being written. */
  readonly storedBytes: number;
  readonly storedBlocks: number;
  /** Prompts that began with rows from the store. */
  readonly storedHits: number;
  /** Tokens of prompts that were not run, because the store had their rows. */
  readonly storedTokens: number;
}

interface Writing {
  readonly owner: string;
  readonly id: number;
  /** Holds the memory of the rows until they are written. */
  readonly fork: Sequence;
  readonly tokenIds: readonly number[];
  readonly chain: readonly string[];
  readonly provenance: RowProvenance;
  isOver: boolean;
}

/** Rows of earlier requests on main's disk. Writes happen one after another behind everything else; whatever fails only costs what was to be stored. */
export class RowStore {
  readonly readTime = new PositionTime();
  private readonly waiting: Writing[] = [];
  private current: Writing | null = null;
  private pumping: Promise<void> | null = null;
  private chores: Promise<void> = Promise.resolve();
  private reads = 0;
  private onRead: (() => void) | null = null;
  private pausedUntilMs = 0;
  private isClosed = false;
  private closing: Promise<void> | null = null;
  private hits = 0;
  private tokens = 0;

  constructor(private readonly options: RowStoreOptions) {}

  counts(): RowStoreCounts {
    const { bytes, size } = this.options.index;
    return { storedBytes: bytes, storedBlocks: size, storedHits: this.hits, storedTokens: this.tokens };
  }

  /** Number of sequences whose memory the store holds. */
  get held(): number {
    return this.waiting.length + (this.current?.isOver === false ? 1 : 0);
  }

  /** Names of the stored blocks that the client's prompt begins with. */
  find(client: string, tokenIds: readonly number[], most: number): string[] {
    if (this.isClosed) return [];
    const { index, key } = this.options;
    return index.stored(blockNames(ownerOf(client, key.salt), key.salt, tokenIds, most));
  }

  /** The checked rows of a block; null: they are gone, or damaged. A damaged file is removed. Never rejects. */
  async read(name: string, block: number): Promise<StoredRows | null> {
    const { files, index, runtime, log } = this.options;
    if (this.isClosed || !index.has(name)) return null;
    const begunMs = runtime.nowMs();
    this.reads += 1;
    try {
      const file = await files.read(name);
      const rows = file && (await runInSteps(checkedRows(file, { name, block }, this.options), runtime));
      if (!index.has(name)) return null;
      if (rows === null) {
        log.warn('a damaged file of the prefix store is dropped', { file: name });
        this.drop(index.remove(name));
        return null;
      }
      this.readTime.note(STORED_BLOCK_POSITIONS, runtime.nowMs() - begunMs);
      return rows;
    } catch (thrown) {
      log.warn('a file of the prefix store cannot be read, and is dropped', {
        file: name,
        error: toOdmoeError(thrown),
      });
      this.drop(index.remove(name));
      return null;
    } finally {
      this.reads -= 1;
      if (this.reads === 0) this.onRead?.();
    }
  }

  /** A prompt has begun with so many tokens from these blocks. */
  used(names: readonly string[], tokens: number): void {
    this.hits += 1;
    this.tokens += tokens;
    this.markUsed(names);
  }

  /** Stores the rows of the sequence that are not stored yet, some time later. The caller keeps the sequence. Not while a pass runs on it. */
  keep({ id, client, sequence, tokenIds, provenance }: RowsToStore): void {
    const { index, key, runtime } = this.options;
    if (this.isClosed || runtime.nowMs() < this.pausedUntilMs) return;
    const owner = ownerOf(client, key.salt);
    const chain = blockNames(owner, key.salt, tokenIds, sequence.length);
    if (index.stored(chain).length === chain.length) {
      if (chain.length > 0) this.markUsed(chain);
      return;
    }
    const positions = chain.length * STORED_BLOCK_POSITIONS;
    const fork = sequence.fork(positions);
    const ofRows = provenance.upTo(positions);
    this.waiting.push({ owner, id, fork, tokenIds, chain, provenance: ofRows, isOver: false });
    if (this.waiting.length > WAITING_LIMIT) this.end(this.waiting.shift());
    this.pumping ??= this.pump();
  }

  /** Memory is short: gives up writing one sequence, the latest one first. False: none was to be written. */
  giveUpOne(): boolean {
    const given = this.waiting.pop() ?? (this.current?.isOver === false ? this.current : undefined);
    this.end(given);
    return given !== undefined;
  }

  /** The worker gave wrong values: rows that it took part in are removed. */
  distrust(workerId: string): void {
    this.giveUpWhere(({ provenance }) => provenance.has(workerId));
    this.drop(this.options.index.distrust(workerId));
  }

  /** Writes what waits, for some seconds at most, and closes the store. All callers wait for the same end. */
  close(): Promise<void> {
    return (this.closing ??= this.closeOnce());
  }

  private async closeOnce(): Promise<void> {
    const { runtime, files } = this.options;
    this.isClosed = true;
    const over = new AbortController();
    await Promise.race([this.pumping, runtime.sleep(CLOSE_WAIT_MS, over.signal)]);
    over.abort();
    this.giveUpWhere(() => true);
    await this.pumping;
    if (this.reads > 0) await new Promise<void>((resolve) => (this.onRead = resolve));
    await this.chores;
    await files.close();
  }

  private giveUpWhere(isToGo: (writing: Writing) => boolean): void {
    for (const writing of [...this.waiting]) {
      if (!isToGo(writing)) continue;
      this.waiting.splice(this.waiting.indexOf(writing), 1);
      this.end(writing);
    }
    if (this.current !== null && isToGo(this.current)) this.end(this.current);
  }

  private end(writing: Writing | undefined): void {
    if (writing === undefined || writing.isOver) return;
    writing.isOver = true;
    writing.fork.dispose();
  }

  private async pump(): Promise<void> {
    const { runtime, log } = this.options;
    for (let next = this.waiting.shift(); next !== undefined; next = this.waiting.shift()) {
      this.current = next;
      try {
        await this.write(next);
      } catch (thrown) {
        this.pausedUntilMs = runtime.nowMs() + PAUSE_MS;
        log.warn('rows cannot be written to the prefix store, which pauses', {
          pauseMs: PAUSE_MS,
          error: toOdmoeError(thrown),
        });
      } finally {
        this.end(next);
        this.current = null;
      }
    }
    this.pumping = null;
  }

  private async write(writing: Writing): Promise<void> {
    const { index } = this.options;
    const { chain } = writing;
    const stored = index.stored(chain);
    this.markUsed(stored);
    for (let block = stored.length; block < chain.length && !writing.isOver; block += 1) {
      // A block before it may have gone meanwhile.
      if (index.stored(chain).length < block) return;
      if (!(await this.writeBlock(writing, block))) return;
    }
  }

  /** False: there is no room for it, or its rows are not wanted any more. */
  private async writeBlock(writing: Writing, block: number): Promise<boolean> {
    const { files, index, runtime } = this.options;
    const { chain } = writing;
    const name = chain[block];
    assertInvariant(name !== undefined, 'a block to write is of its chain.');
    const workers = workersOf(writing.provenance, (block + 1) * STORED_BLOCK_POSITIONS);
    const file = await runInSteps(encodedBlock(writing, block, { ...this.options, workers }), runtime);
    if (file === null) return false;
    const before = chain.slice(0, block);
    const gone = index.reserve(file.length, before);
    if (gone === null) return false;
    try {
      // A damaged file of this name may still have to go.
      await this.chores;
      if (gone.length > 0) await files.remove(gone);
      await files.write(name, file);
      if (!writing.isOver) await files.publish(name);
    } catch (thrown) {
      index.giveUp(file.length);
      throw thrown;
    }
    if (writing.isOver || index.stored(before).length < block) {
      await files.remove([name]);
      index.giveUp(file.length);
      return false;
    }
    const parent = chain[block - 1] ?? '';
    index.add({ name, parent, bytes: file.length, workers: Object.keys(workers) }, chain.slice(0, block + 1));
    return true;
  }

  private markUsed(names: readonly string[]): void {
    const { files, index, runtime } = this.options;
    index.touch(names);
    const usedMs = runtime.wallMs();
    this.later(() => files.touch(names, usedMs));
  }

  /** Removes the files of blocks that the index has forgotten. */
  private drop(names: readonly string[]): void {
    if (names.length > 0) this.later(() => this.options.files.remove(names));
  }

  private later(work: () => Promise<void>): void {
    this.chores = this.chores.then(work).catch((thrown: unknown) => {
      this.options.log.warn('a file of the prefix store cannot be changed', { error: toOdmoeError(thrown) });
    });
  }
}

/** Workers that took part in rows below `end`, each with the first of its positions. */
function workersOf(provenance: RowProvenance, end: number): Record<string, number> {
  return Object.fromEntries(provenance.upTo(end).entries());
}
