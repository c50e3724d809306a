import { copyFile, rename, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { Checkpoint } from '../checkpoint/checkpoint.js';
import { INDEX_FILE, QUANTIZATION_FILES } from '../checkpoint/weight-files.js';
import { CHECKPOINT_FILE_ERRORS, readInto, type SafetensorsFile } from '../checkpoint/safetensors-file.js';
import { COPIED_FILES, PARTIAL_SUFFIX } from '../format/pack-layout.js';
import { fileAhead } from './file-arrivals.js';
import { densePlaces } from '../../shared/model/dense-roles.js';
import { openCounted } from '../../shared/base/files/counted-file.js';
import { makeDirectories } from '../../shared/base/files/make-directories.js';
import { fileExists, openFile, readFailure } from '../../shared/base/files/read-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { syncDirectory } from '../../shared/base/files/sync-directory.js';

/** A checkpoint whose weight files come one by one while a pack is made from it. */
export interface ComingFiles {
  /** The directory into which they come. All other files of the checkpoint are there already. */
  readonly directory: string;
  /** Headers of all weight files, by name. */
  readonly headers: ReadonlyMap<string, SafetensorsFile>;
  /** Brings a weight file, whole and verified, with the time of change that its header has here. `unwanted` aborts when nobody waits for it any more. */
  bring(name: string, unwanted: AbortSignal): Promise<void>;
}

/** Bytes [beginBytes, endBytes) of a file. */
export interface ByteRange {
  beginBytes: number;
  endBytes: number;
}

const COPY_BYTES = 8 * 1024 * 1024;

/**
 * The ranges of each weight file that dense.safetensors needs, by the file's name: its header and all dense tensors in it, in order, without overlap. A
 * file that holds none is left out. Pure.
 */
export function denseRanges(checkpoint: Checkpoint): Map<string, ByteRange[]> {
  const ranges = new Map<string, ByteRange[]>();
  const add = (path: string, offsetBytes: number, sizeBytes: number): void => {
    const name = basename(path);
    const own = ranges.get(name) ?? [];
    own.push({ beginBytes: offsetBytes, endBytes: offsetBytes + sizeBytes });
    ranges.set(name, own);
  };
  for (const { role, layer } of densePlaces(checkpoint.shape, checkpoint.tiedEmbeddings)) {
    for (const { path, offsetBytes, storedBytes } of checkpoint.dense(role, layer).chunks)
      add(path, offsetBytes, storedBytes);
  }
  const { tiedHead } = checkpoint;
  if (tiedHead !== null) add(tiedHead.path, tiedHead.offsetBytes, tiedHead.sizeBytes);
  for (const { path, tensors, sizeBytes } of checkpoint.files) {
    if (ranges.has(basename(path))) add(path, 0, dataStart(tensors, sizeBytes));
  }
  for (const [name, own] of ranges) ranges.set(name, joined(own));
  return ranges;
}

/** End of a file's header: where its first tensor begins. */
function dataStart(tensors: SafetensorsFile['tensors'], sizeBytes: number): number {
  return [...tensors.values()].reduce((first, { offsetBytes }) => Math.min(first, offsetBytes), sizeBytes);
}

/** The ranges in order; those that touch or overlap become one. Pure. */
function joined(ranges: readonly ByteRange[]): ByteRange[] {
  const result: ByteRange[] = [];
  for (const range of [...ranges].sort((a, b) => a.beginBytes - b.beginBytes)) {
    const last = result.at(-1);
    if (last !== undefined && range.beginBytes <= last.endBytes)
      last.endBytes = Math.max(last.endBytes, range.endBytes);
    else result.push({ ...range });
  }
  return result;
}

export function rangesBytes(ranges: readonly ByteRange[]): number {
  return ranges.reduce((sum, { beginBytes, endBytes }) => sum + endBytes - beginBytes, 0);
}

/**
 * Holds, of weight files whose experts are packed, the dense tensors alone: files of the same names, sizes and headers in a directory of its own,
 * with holes where experts were. dense.safetensors needs tensors of nearly every weight file, and is made of these at the end.
 */
export class DenseRemains {
  readonly directory: string;

  constructor(
    private readonly source: ComingFiles,
    private readonly ranges: ReadonlyMap<string, readonly ByteRange[]>,
  ) {
    this.directory = join(source.directory, 'dense');
  }

  /** Makes the directory, with the checkpoint's small files. @throws STORAGE_FULL, STORAGE_FAILED */
  async prepare(): Promise<void> {
    try {
      await makeDirectories(this.directory);
      for (const name of [...COPIED_FILES, INDEX_FILE, ...QUANTIZATION_FILES]) {
        const from = join(this.source.directory, name);
        if (await fileExists(from)) await copyFile(from, join(this.directory, name));
      }
    } catch (thrown) {
      throw writeFailure(thrown, this.directory, null);
    }
  }

  async has(name: string): Promise<boolean> {
    return fileExists(join(this.directory, name));
  }

  /** Keeps what is needed of a whole weight file, and deletes that file. */
  async takeOver(file: SafetensorsFile): Promise<void> {
    const name = basename(file.path);
    const ranges = this.ranges.get(name);
    if (ranges !== undefined && !(await this.has(name))) await this.keep(file, name, ranges);
    await rm(file.path, { force: true });
    await syncDirectory(this.source.directory);
  }

  private async keep(
    { path, sizeBytes, modifiedMs }: SafetensorsFile,
    name: string,
    ranges: readonly ByteRange[],
  ): Promise<void> {
    const kept = join(this.directory, name);
    const input = await openFile(path).catch((thrown: unknown) => {
      throw readFailure(thrown, path, CHECKPOINT_FILE_ERRORS);
    });
    try {
      const output = await openCounted(kept + PARTIAL_SUFFIX, 'w');
      try {
        await output.truncate(sizeBytes);
        for (const { beginBytes, endBytes } of ranges) {
          for (let at = beginBytes; at < endBytes; at += COPY_BYTES) {
            const bytes = Buffer.allocUnsafe(Math.min(COPY_BYTES, endBytes - at));
            await readInto(input, path, at, bytes);
            for (let done = 0; done < bytes.length;) {
              done += (await output.write(bytes, done, bytes.length - done, at + done)).bytesWritten;
            }
          }
        }
        await output.utimes(modifiedMs / 1000, modifiedMs / 1000);
        await output.sync();
      } finally {
        await output.close();
      }
      await rename(kept + PARTIAL_SUFFIX, kept);
      await syncDirectory(this.directory);
    } catch (thrown) {
      throw writeFailure(thrown, kept, rangesBytes(ranges));
    } finally {
      await input.close();
    }
  }
}

/** A step of making a pack, for the room that it needs. */
export interface RoomStep {
  /** Weight files that must be there. */
  needs: readonly string[];
  /** Bytes that it writes. */
  writtenBytes: number;
  /** Weight files of which only the remains stay after it. */
  lastUseOf: readonly string[];
  /** The needs of the steps behind it whose files may come ahead. */
  later: readonly (readonly string[])[];
}

/**
 * Most bytes on the disk, beyond those that are there, at any moment of the steps. `files`: size of each weight file, and of its remains; `here`:
 * names of weight files that are there already. `isAhead`: one file comes ahead (fileAhead). Pure.
 */
export function comingPeakBytes(
  steps: readonly RoomStep[],
  files: ReadonlyMap<string, { sizeBytes: number; keptBytes: number }>,
  here: ReadonlySet<string>,
  isAhead: boolean,
): number {
  const present = new Set(here);
  let [bytes, peak] = [0, 0];
  for (const { needs, writtenBytes, lastUseOf, later } of steps) {
    const ahead = isAhead ? fileAhead(later, new Set([...present, ...needs])) : null;
    for (const name of ahead === null ? needs : [...needs, ahead]) {
      if (present.has(name)) continue;
      present.add(name);
      bytes += files.get(name)?.sizeBytes ?? 0;
    }
    bytes += writtenBytes;
    peak = Math.max(peak, bytes);
    for (const name of lastUseOf) {
      const { sizeBytes = 0, keptBytes = 0 } = files.get(name) ?? {};
      // The remains are written before the file is deleted.
      peak = Math.max(peak, bytes + keptBytes);
      bytes += keptBytes - sizeBytes;
      present.delete(name);
    }
  }
  return peak;
}
