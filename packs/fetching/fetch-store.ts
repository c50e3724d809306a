import type { FileHandle } from 'node:fs/promises';
import type { ExpertExtent } from '../format/extents.js';
import type { HeldExperts } from '../format/held-experts.js';
import type { Pack } from '../format/open-pack.js';
import type { ManifestFile } from '../format/manifest.js';

/** A pack that becomes whole when it has all its files, as PartialPack does. */
export interface CompletedPack {
  readonly pack: Pack;
  readonly held: HeldExperts;
  readonly isWhole: boolean;
  missingFiles(): Promise<ManifestFile[]>;
  promote(): Promise<void>;
  cleanUp(): Promise<void>;
}

/** The files that an ExpertFetcher fetches experts into: those of a pack's lossless parts, or those of one slice. */
export interface FetchStore {
  readonly pack: Pack;
  /** Empty: the lossless parts. */
  readonly slicesDigest: string;
  readonly held: HeldExperts;
  /** The pack whose other files are fetched once every expert is here; null: there are none. */
  readonly otherFilesOf: CompletedPack | null;
  extent(layer: number, expert: number): ExpertExtent;
  /** Opens the file of an expert, with its full size; the caller closes it. @throws STORAGE_FULL, STORAGE_FAILED */
  openExpertFile(name: string): Promise<FileHandle>;
  /** Records that every chunk of the expert is on the disk and had the right checksum. @throws STORAGE_FULL, STORAGE_FAILED */
  record(layer: number, expert: number): Promise<void>;
  /** The expert's bytes on the disk are wrong: it counts as not fetched. @throws LockHeldError, STORAGE_FULL, STORAGE_FAILED */
  forget(layer: number, expert: number): Promise<void>;
  close(): Promise<void>;
}
