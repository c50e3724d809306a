import { readdir, rename, rm, writeFile, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExpertId } from '../../shared/model/expert-id.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { makeDirectories } from '../../shared/base/files/make-directories.js';
import { syncDirectory } from '../../shared/base/files/sync-directory.js';
import { fileExists, readBoundedFile } from '../../shared/base/files/read-file.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { expertExtents, type ExpertExtent } from '../format/extents.js';
import { HeldExperts } from '../format/held-experts.js';
import type { ManifestFile } from '../format/manifest.js';
import { MANIFEST_LIMIT_BYTES, packOfManifest, type Pack } from '../format/open-pack.js';
import {
  FETCH_JOURNAL_FILE,
  FETCH_LOCK_FILE,
  FETCH_MANIFEST_FILE,
  FETCHED_JOURNAL_FILE,
  MANIFEST_FILE,
  PARTIAL_SUFFIX,
} from '../format/pack-layout.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { ProcessLock } from '../../shared/base/files/process-lock.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { FetchJournal } from './fetch-journal.js';
import type { CompletedPack, FetchStore } from './fetch-store.js';
import { acquireFetchLock, fileSize, openSized } from './fetched-files.js';

/** State of a directory for a fetch: empty or absent, with an unfinished fetch, or with something else. */
export type FetchPlace = 'new' | 'begun' | 'other';

/** @throws MODEL_NOT_FOUND if the path is a file; STORAGE_FAILED if the directory cannot be read */
export async function fetchPlace(directory: string): Promise<FetchPlace> {
  if (await fileExists(join(directory, MANIFEST_FILE))) return 'other';
  let names: string[];
  try {
    names = await readdir(directory);
  } catch (thrown) {
    if (systemErrorCode(thrown) === 'ENOENT') return 'new';
    if (systemErrorCode(thrown) === 'ENOTDIR') {
      const advice = 'give the directory of a pack, or one to fetch into';
      throw new OdmoeError('MODEL_NOT_FOUND', `${directory}: is no directory; ${advice}`);
    }
    throw writeFailure(thrown, directory, null);
  }
  if (names.includes(FETCH_JOURNAL_FILE)) return 'begun';
  const foreign = names.filter((name) => !name.startsWith(FETCH_LOCK_FILE) && !name.startsWith(FETCH_MANIFEST_FILE));
  return foreign.length === 0 ? 'new' : 'other';
}

/** True if a worker fetched the whole pack in the directory. */
export async function wasFetched(directory: string): Promise<boolean> {
  const names = [FETCHED_JOURNAL_FILE, FETCH_JOURNAL_FILE].map((name) => fileExists(join(directory, name)));
  return (await Promise.all(names)).includes(true);
}

/**
 * Prepares a whole pack that a worker fetched for fetching parts of it again. Returns false, and changes nothing, if the pack was not fetched.
 * @throws LockHeldError, STORAGE_FAILED
 */
export async function reopenFetch(directory: string): Promise<boolean> {
  if (!(await wasFetched(directory))) return false;
  const lock = await acquireFetchLock(directory);
  try {
    await demote(directory, new FetchJournal(directory));
  } finally {
    await lock.release();
  }
  return true;
}

/**
 * A directory into which a worker fetches the experts that it needs. It holds the manifest, expert files of full size with holes for missing
 * experts, and a journal of the experts that are present. Only this process may use it until it is closed or whole.
 */
export class PartialPack implements FetchStore, CompletedPack {
  readonly slicesDigest = '';
  readonly held: HeldExperts;
  readonly extents: readonly ExpertExtent[];
  private whole = false;
  /** Settles when all changes of journal and manifest that were begun are done. They run one at a time. */
  private changes: Promise<void> = Promise.resolve();

  private constructor(
    readonly pack: Pack,
    private readonly journal: FetchJournal,
    /** Null while the pack is whole. */
    private lock: ProcessLock | null,
    private readonly runtime: Runtime,
  ) {
    this.held = HeldExperts.none(pack.shape.expertLayers, pack.shape.experts);
    this.extents = expertExtents(pack.manifest);
  }

  /**
   * Continues a fetch. Returns null if its journal and manifest are useless and the fetch must begin anew. `parse`: anyPackOfManifest where no
   * lossless experts are needed.
   * @throws LockHeldError, MODEL_UNSUPPORTED (another format version), STORAGE_FAILED
   */
  static async resume(directory: string, runtime: Runtime, parse = packOfManifest): Promise<PartialPack | null> {
    const lock = await acquireFetchLock(directory);
    try {
      const journal = new FetchJournal(directory);
      const begun = await journal.read();
      const path = join(directory, FETCH_MANIFEST_FILE);
      if (begun === null || !(await fileExists(path))) {
        await lock.release();
        return null;
      }
      const pack = await begunPack(directory, path, parse);
      if (begun.head.format !== 'odmoe-fetching' || pack?.packDigest !== begun.head.pack_digest) {
        await lock.release();
        return null;
      }
      const partial = new PartialPack(pack, journal, lock, runtime);
      await partial.take(begun.fetched);
      return partial;
    } catch (thrown) {
      await lock.release();
      throw thrown;
    }
  }

  /**
   * Begins a fetch of the pack that the manifest describes. The caller has checked the manifest's digest. `parse`: as for resume.
   * @throws LockHeldError, PACK_CORRUPT, MODEL_UNSUPPORTED, STORAGE_FULL, STORAGE_FAILED
   */
  static async begin(
    directory: string,
    manifest: Uint8Array,
    runtime: Runtime,
    parse = packOfManifest,
  ): Promise<PartialPack> {
    const path = join(directory, FETCH_MANIFEST_FILE);
    const pack = parse(directory, manifest, path);
    try {
      await makeDirectories(directory, 0o755);
    } catch (thrown) {
      throw writeFailure(thrown, directory, null);
    }
    const lock = await acquireFetchLock(directory);
    try {
      if (await fileExists(join(directory, MANIFEST_FILE))) throw wholeMeanwhile(directory);
      const journal = new FetchJournal(directory);
      // Bytes of an earlier, useless fetch would stay between the chunks.
      for (const { name } of pack.manifest.files) await rm(join(directory, name), { force: true });
      await writeFile(path + PARTIAL_SUFFIX, manifest, { flush: true });
      await rename(path + PARTIAL_SUFFIX, path);
      await journal.begin(directory, { format: 'odmoe-fetching', pack_digest: pack.packDigest });
      return new PartialPack(pack, journal, lock, runtime);
    } catch (thrown) {
      await lock.release();
      throw writeFailure(thrown, path, null);
    }
  }

  /** A pack that a worker fetched and has just opened. It counts as whole until a part of it proves damaged. */
  static ofWhole(pack: Pack, runtime: Runtime): PartialPack {
    const partial = new PartialPack(pack, new FetchJournal(pack.directory), null, runtime);
    for (const { layer, expert } of partial.extents) partial.held.add(layer, expert);
    partial.whole = true;
    return partial;
  }

  /** The other files come once every expert is here. */
  get otherFilesOf(): CompletedPack {
    return this;
  }

  /** True if every file of the pack is on the disk: it is an ordinary pack. */
  get isWhole(): boolean {
    return this.whole;
  }

  extent(layer: number, expert: number): ExpertExtent {
    const extent = this.extents[layer * this.pack.shape.experts + expert];
    if (extent === undefined) throw new RangeError(`expert ${expert} of layer ${layer}`);
    return extent;
  }

  /** Opens the file of an expert, with its full size; the caller closes it. @throws STORAGE_FULL, STORAGE_FAILED */
  openExpertFile(name: string): Promise<FileHandle> {
    const sizeBytes = this.fileEntry(name).size_bytes;
    return this.runtime.outside(() => openSized(join(this.pack.directory, name), sizeBytes));
  }

  /** Records that every chunk of the expert is on the disk and had the right checksum. @throws STORAGE_FULL, STORAGE_FAILED */
  record(layer: number, expert: number): Promise<void> {
    return this.change(async () => {
      await this.journal.record({ layer, expert });
      this.held.add(layer, expert);
    });
  }

  /**
   * The expert's bytes on the disk are wrong: it counts as not fetched. A whole pack is then no longer whole.
   * @throws LockHeldError, STORAGE_FULL, STORAGE_FAILED
   */
  forget(layer: number, expert: number): Promise<void> {
    return this.change(async () => {
      if (this.whole) {
        this.lock ??= await acquireFetchLock(this.pack.directory);
        await demote(this.pack.directory, this.journal);
        this.whole = false;
      }
      await this.journal.forget({ layer, expert });
      this.held.remove(layer, expert);
    });
  }

  /** Missing files that hold no experts. */
  missingFiles(): Promise<ManifestFile[]> {
    return this.runtime.outside(() => this.findMissingFiles());
  }

  private async findMissingFiles(): Promise<ManifestFile[]> {
    const expertFiles = new Set(this.extents.map(({ file }) => file));
    const missing: ManifestFile[] = [];
    for (const file of this.pack.manifest.files) {
      if (expertFiles.has(file.name)) continue;
      if ((await fileSize(join(this.pack.directory, file.name))) !== file.size_bytes) missing.push(file);
    }
    return missing;
  }

  /** Makes the directory an ordinary pack. Every expert and every file must be on the disk. @throws STORAGE_FULL, STORAGE_FAILED */
  promote(): Promise<void> {
    return this.change(() => this.becomeWhole());
  }

  private async becomeWhole(): Promise<void> {
    const { directory } = this.pack;
    if (!this.held.isComplete || (await this.findMissingFiles()).length > 0) {
      throw new OdmoeError('INTERNAL', `${directory}: is to become a whole pack and is none yet`);
    }
    try {
      await rename(join(directory, FETCH_MANIFEST_FILE), join(directory, MANIFEST_FILE));
    } catch (thrown) {
      throw writeFailure(thrown, join(directory, MANIFEST_FILE), null);
    }
    this.whole = true;
  }

  /** Removes files of the fetch from a whole pack; files that remain do no harm. @throws STORAGE_FAILED */
  cleanUp(): Promise<void> {
    return this.change(() => this.putAway());
  }

  private async putAway(): Promise<void> {
    const { directory } = this.pack;
    // A part of the pack may have proved damaged in the meantime.
    if (!this.whole) return;
    try {
      // The journal stays until the manifest's new name is on the disk, because a crash may undo the renaming.
      await syncDirectory(directory);
      await this.journal.finish();
    } catch (thrown) {
      throw writeFailure(thrown, directory, null);
    } finally {
      await this.releaseLock();
    }
  }

  async close(): Promise<void> {
    await this.changes;
    if (!this.whole) await this.runtime.outside(() => this.releaseLock());
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

  private fileEntry(name: string): ManifestFile {
    const entry = this.pack.manifest.files.find((file) => file.name === name);
    if (entry === undefined) throw new RangeError(`${name} is no file of the pack`);
    return entry;
  }

  /**
   * Takes over the experts of the journal. If a file is too short for an expert, the expert does not count as present, now or after the file has
   * its full size again.
   */
  private async take(fetched: readonly ExpertId[]): Promise<void> {
    const { expertLayers, experts } = this.pack.shape;
    const sizes = new Map<string, number>();
    for (const { layer, expert } of fetched) {
      if (layer >= expertLayers || expert >= experts) continue;
      const { file, endBytes } = this.extent(layer, expert);
      const sizeBytes = sizes.get(file) ?? (await fileSize(join(this.pack.directory, file))) ?? 0;
      sizes.set(file, sizeBytes);
      if (endBytes <= sizeBytes) this.held.add(layer, expert);
      else await this.journal.forget({ layer, expert });
    }
  }
}

/** Null if the bytes are not a valid manifest. */
async function begunPack(directory: string, path: string, parse: typeof packOfManifest): Promise<Pack | null> {
  try {
    return parse(directory, await readBoundedFile(path, MANIFEST_LIMIT_BYTES, MANIFEST_ERRORS), path);
  } catch (thrown) {
    if (thrown instanceof OdmoeError && thrown.code === 'PACK_CORRUPT') return null;
    throw thrown;
  }
}

/** The journal is renamed first: a directory with both journal and manifest still counts as a whole pack. */
async function demote(directory: string, journal: FetchJournal): Promise<void> {
  try {
    await journal.reopen();
    await syncDirectory(directory);
    await rename(join(directory, MANIFEST_FILE), join(directory, FETCH_MANIFEST_FILE));
    await syncDirectory(directory);
  } catch (thrown) {
    throw writeFailure(thrown, directory, null);
  }
}

const MANIFEST_ERRORS = {
  missing: 'PACK_CORRUPT',
  invalid: 'PACK_CORRUPT',
  remedy: 'remove the directory: the worker fetches it again',
} as const;

/** Another worker has completed the pack since the directory was examined: it can be opened now. */
export class BecameWholeError extends OdmoeError {}

function wholeMeanwhile(directory: string): BecameWholeError {
  return new BecameWholeError(
    'STORAGE_FAILED',
    `${directory}: has become a whole pack meanwhile by another worker; start this one again`,
  );
}
