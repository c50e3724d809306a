import { createHash } from 'node:crypto';
import { rename, rm, writeFile, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fileExists, readBoundedFile } from '../../shared/base/files/read-file.js';
import { syncDirectory } from '../../shared/base/files/sync-directory.js';
import type { ProcessLock } from '../../shared/base/files/process-lock.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { ExpertId } from '../../shared/model/expert-id.js';
import { recordOf } from '../../shared/model/expert-parts.js';
import type { ExpertExtent } from '../format/extents.js';
import { HeldExperts } from '../format/held-experts.js';
import { MANIFEST_LIMIT_BYTES, type Pack } from '../format/open-pack.js';
import {
  FETCH_SLICES_FILE,
  FETCH_SLICES_JOURNAL_FILE,
  FETCH_SLICES_LOCK_FILE,
  PARTIAL_SUFFIX,
  type Slice,
  type SliceSet,
  SLICES,
  SLICES_FILE,
  slicesOfSet,
  SLICING_JOURNAL_FILE,
} from '../format/pack-layout.js';
import { type Slices, slicesOfManifest } from '../slices/open-slices.js';
import { sliceExtents } from '../slices/slice-extents.js';
import { filesOfSlice, type SlicesManifest } from '../slices/slices-manifest.js';
import { type FetchedExpert, FetchJournal } from './fetch-journal.js';
import type { FetchStore } from './fetch-store.js';
import { acquireFetchLock, fileSize, openSized } from './fetched-files.js';
import type { ServedSlices } from './served-slices.js';

/** The slices that are to be fetched. */
export interface WantedSlices {
  pack: Pack;
  /** SHA-256 of slices.json, as main gives it. */
  digest: string;
  set: SliceSet;
  /** Throws if these slices cannot be used. Then nothing in the directory has been changed. Left out: all can. */
  accept?: (slices: Slices) => unknown;
}

/**
 * Slices that a worker fetches into the directory of its pack, or of its partial pack: slices.json under another name, files of full size with
 * holes for what is missing, and a journal of what is there. When everything that is wanted is there, slices.json gets its name; the journal
 * stays, so that damaged slices are fetched again. Only this process may write the files until they are whole, or this is closed.
 */
export class PartialSlices implements ServedSlices {
  readonly held: Readonly<Record<Slice, HeldExperts>>;
  private readonly extents: Readonly<Record<Slice, readonly ExpertExtent[]>>;
  private whole = false;
  /** Settles when all changes of journal and slices.json that were begun are done. They run one at a time. */
  private changes: Promise<void> = Promise.resolve();

  private constructor(
    readonly pack: Pack,
    /** The experts' slices. Only those that are held may be read. */
    readonly slices: Slices,
    private readonly journal: FetchJournal,
    /** Null while the slices are whole. */
    private lock: ProcessLock | null,
    private readonly runtime: Runtime,
  ) {
    const { expertLayers, experts } = pack.shape;
    this.held = recordOf(SLICES, () => HeldExperts.none(expertLayers, experts));
    this.extents = recordOf(SLICES, (slice) => sliceExtents(slices.manifest, slice));
  }

  /**
   * Continues a fetch. Returns null if there is none, or it is of other slices, or its slices.json is damaged: then it must begin anew.
   * @throws LockHeldError, MODEL_UNSUPPORTED (slices of another format version), STORAGE_FULL, STORAGE_FAILED; as wanted.accept
   */
  static async resume(wanted: WantedSlices, runtime: Runtime): Promise<PartialSlices | null> {
    const { pack, digest } = wanted;
    const { directory } = pack;
    const lock = await acquireFetchLock(directory, FETCH_SLICES_LOCK_FILE);
    try {
      const journal = new FetchJournal(directory, FETCH_SLICES_JOURNAL_FILE);
      const begun = await journal.read();
      const isOfThese = begun?.head.format === 'odmoe-fetching-slices' && begun.head.slices_digest === digest;
      const [wholePath, begunPath] = [join(directory, SLICES_FILE), join(directory, FETCH_SLICES_FILE)];
      const wasWhole = await fileExists(wholePath);
      const slices = isOfThese ? await begunSlices(wanted, wasWhole ? wholePath : begunPath) : null;
      if (slices === null || begun === null) {
        await lock.release();
        return null;
      }
      wanted.accept?.(slices);
      const partial = new PartialSlices(pack, slices, journal, lock, runtime);
      partial.whole = wasWhole;
      await partial.take(begun.fetched);
      if (partial.hasAll) await partial.becomeWhole();
      else if (wasWhole) await partial.demote();
      return partial;
    } catch (thrown) {
      await lock.release();
      throw thrown;
    }
  }

  /**
   * Begins a fetch of the slices that these bytes of slices.json describe. What an earlier fetch left of other slices is removed.
   * @throws LockHeldError, PACK_CORRUPT (also if the bytes have another digest), MODEL_UNSUPPORTED, STORAGE_FULL, STORAGE_FAILED; as accept
   */
  static async begin(
    { pack, digest, set, accept }: WantedSlices,
    bytes: Uint8Array,
    runtime: Runtime,
  ): Promise<PartialSlices> {
    const { directory } = pack;
    const path = join(directory, FETCH_SLICES_FILE);
    requireDigest(bytes, digest, path);
    const slices = slicesOfManifest(pack, bytes, path, set);
    accept?.(slices);
    const lock = await acquireFetchLock(directory, FETCH_SLICES_LOCK_FILE);
    try {
      if (await hasGivenSlices(directory)) throw notFetched(directory);
      await rm(join(directory, SLICES_FILE), { force: true });
      // Bytes of earlier slices would stay between the chunks.
      for (const { name } of slices.manifest.files) await rm(join(directory, name), { force: true });
      await writeFile(path + PARTIAL_SUFFIX, bytes, { flush: true });
      await rename(path + PARTIAL_SUFFIX, path);
      const journal = new FetchJournal(directory, FETCH_SLICES_JOURNAL_FILE);
      await journal.begin(directory, { format: 'odmoe-fetching-slices', slices_digest: digest });
      return new PartialSlices(pack, slices, journal, lock, runtime);
    } catch (thrown) {
      await lock.release();
      throw writeFailure(thrown, path, null);
    }
  }

  get directory(): string {
    return this.pack.directory;
  }

  get digest(): string {
    return this.slices.digest;
  }

  get manifest(): SlicesManifest {
    return this.slices.manifest;
  }

  get manifestFile(): string {
    return this.whole ? SLICES_FILE : FETCH_SLICES_FILE;
  }

  /** True if everything that is wanted is on the disk: the directory has slices, or upper slices, as openSlices opens them. */
  get isWhole(): boolean {
    return this.whole;
  }

  /** An ExpertFetcher puts one slice of each expert there. Closing it does nothing: it is closed with this. */
  storeOf(slice: Slice): FetchStore {
    return {
      pack: this.pack,
      slicesDigest: this.digest,
      held: this.held[slice],
      otherFilesOf: null,
      extent: (layer, expert) => this.extent(layer, expert, slice),
      openExpertFile: (name) => this.openFile(name),
      record: (layer, expert) => this.record({ layer, expert, slice }),
      forget: (layer, expert) => this.forget({ layer, expert, slice }),
      close: () => Promise.resolve(),
    };
  }

  async close(): Promise<void> {
    await this.changes;
    await this.runtime.outside(() => this.releaseLock());
  }

  private extent(layer: number, expert: number, slice: Slice): ExpertExtent {
    const extent = this.extents[slice][layer * this.pack.shape.experts + expert];
    return requirePresent(extent, 'slices are asked for of experts that the model has.');
  }

  private openFile(name: string): Promise<FileHandle> {
    const entry = this.manifest.files.find((file) => file.name === name);
    const { size_bytes: sizeBytes } = requirePresent(entry, 'every extent of slices is in a file of slices.json.');
    return this.runtime.outside(() => openSized(join(this.directory, name), sizeBytes));
  }

  private record({ layer, expert, slice }: ExpertId & { slice: Slice }): Promise<void> {
    return this.change(async () => {
      await this.journal.record({ layer, expert, slice });
      this.held[slice].add(layer, expert);
      if (this.hasAll && !this.whole) await this.becomeWhole();
    });
  }

  private forget({ layer, expert, slice }: ExpertId & { slice: Slice }): Promise<void> {
    return this.change(async () => {
      if (this.whole) {
        this.lock ??= await acquireFetchLock(this.directory, FETCH_SLICES_LOCK_FILE);
        await this.demote();
      }
      await this.journal.forget({ layer, expert, slice });
      this.held[slice].remove(layer, expert);
    });
  }

  /** An earlier fetch may have left some slices that are not wanted now. Beside them the directory does not count as whole. */
  private get hasAll(): boolean {
    const wanted = slicesOfSet(this.slices.opened);
    return SLICES.every((slice) => {
      const held = this.held[slice];
      return held.isComplete || (!wanted.includes(slice) && held.isEmpty);
    });
  }

  private async becomeWhole(): Promise<void> {
    if (!this.whole) {
      await this.removeEmptyFiles();
      await this.rename(FETCH_SLICES_FILE, SLICES_FILE);
    }
    this.whole = true;
    await this.releaseLock();
  }

  /** Removes files of slices that are not wanted and of which an earlier fetch has finished none. */
  private async removeEmptyFiles(): Promise<void> {
    for (const slice of SLICES) {
      if (!this.held[slice].isEmpty) continue;
      for (const { name } of filesOfSlice(this.manifest, slice)) {
        const path = join(this.directory, name);
        await rm(path, { force: true }).catch((thrown: unknown) => {
          throw writeFailure(thrown, path, null);
        });
      }
    }
  }

  private async demote(): Promise<void> {
    await this.rename(SLICES_FILE, FETCH_SLICES_FILE);
    this.whole = false;
  }

  private async rename(from: string, to: string): Promise<void> {
    const path = join(this.directory, to);
    try {
      await rename(join(this.directory, from), path);
      await syncDirectory(this.directory);
    } catch (thrown) {
      throw writeFailure(thrown, path, null);
    }
  }

  private change(work: () => Promise<void>): Promise<void> {
    const done = this.changes.then(() => this.runtime.outside(work));
    this.changes = done.catch(() => undefined);
    return done;
  }

  private async releaseLock(): Promise<void> {
    await this.lock?.release();
    this.lock = null;
  }

  /** Takes over what the journal names. A slice behind the end of a file that is too short is not there, now or later. */
  private async take(fetched: readonly FetchedExpert[]): Promise<void> {
    const { expertLayers, experts } = this.pack.shape;
    const sizes = new Map<string, number>();
    for (const { layer, expert, slice } of fetched) {
      if (slice === undefined || layer >= expertLayers || expert >= experts) continue;
      const { file, endBytes } = this.extent(layer, expert, slice);
      const sizeBytes = sizes.get(file) ?? (await fileSize(join(this.directory, file))) ?? 0;
      sizes.set(file, sizeBytes);
      if (endBytes <= sizeBytes) this.held[slice].add(layer, expert);
      else await this.journal.forget({ layer, expert, slice });
    }
  }
}

/** True if slices are there, whole or not finished, that no worker fetched: fetched ones must not take their place. */
export async function hasGivenSlices(directory: string): Promise<boolean> {
  if (await fileExists(join(directory, FETCH_SLICES_JOURNAL_FILE))) return false;
  for (const name of [SLICES_FILE, SLICING_JOURNAL_FILE]) if (await fileExists(join(directory, name))) return true;
  return false;
}

/** Null if the file is not there, or has not the bytes of these slices. */
async function begunSlices({ pack, digest, set }: WantedSlices, path: string): Promise<Slices | null> {
  if (!(await fileExists(path))) return null;
  try {
    const bytes = await readBoundedFile(path, MANIFEST_LIMIT_BYTES, BEGUN_ERRORS);
    requireDigest(bytes, digest, path);
    return slicesOfManifest(pack, bytes, path, set);
  } catch (thrown) {
    if (thrown instanceof OdmoeError && thrown.code === 'PACK_CORRUPT') return null;
    throw thrown;
  }
}

const BEGUN_ERRORS = {
  missing: 'PACK_CORRUPT',
  invalid: 'PACK_CORRUPT',
  remedy: 'remove it: the worker fetches it again',
} as const;

function requireDigest(bytes: Uint8Array, digest: string, path: string): void {
  const found = createHash('sha256').update(bytes).digest('hex');
  if (found === digest) return;
  throw new OdmoeError('PACK_CORRUPT', `${path}: has the digest ${found} instead of ${digest}; ${BEGUN_ERRORS.remedy}`);
}

function notFetched(directory: string): OdmoeError {
  return new OdmoeError(
    'STORAGE_FAILED',
    `${directory}: holds slices already that no worker fetched; remove ${SLICES_FILE}, ${SLICING_JOURNAL_FILE} and slices-*.bin there, or fetch into another directory`,
  );
}
