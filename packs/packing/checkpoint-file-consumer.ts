import { realpath, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fileExists, openFile, readFailure } from '../../shared/base/files/read-file.js';
import { syncDirectory } from '../../shared/base/files/sync-directory.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { CHECKPOINT_FILE_ERRORS, readExactly, type SafetensorsFile } from '../checkpoint/safetensors-file.js';
import { HEADER_LENGTH_BYTES, parseSafetensorsHeader } from '../checkpoint/safetensors-header.js';
import { sha256Hex } from './source-identity.js';
import type { FinishedFile } from '../format/manifest.js';
import type { ByteTools } from './packing-context.js';
import type { ConsumedFile, PackingJournal } from './packing-journal.js';
import type { PlannedFile } from './planned-files.js';
import { damageError, type PackDamage, verifyFinishedFile } from './verify-pack.js';

/** A checkpoint file, and the files of the pack that are made from it. */
export interface SourceFile {
  file: SafetensorsFile;
  /** Names of files of the pack. */
  neededFor: readonly string[];
}

export function sourceFiles(files: readonly SafetensorsFile[], planned: readonly PlannedFile[]): SourceFile[] {
  return files.map((file) => ({
    file,
    neededFor: planned.filter(({ sourcePaths }) => sourcePaths.has(file.path)).map(({ name }) => name),
  }));
}

/**
 * Most additional bytes on the disk that packing needs if a checkpoint file is deleted as soon as everything made from it is finished. `gone`: names
 * of checkpoint files that were deleted before. Pure.
 */
export function peakBytes(
  planned: readonly Pick<PlannedFile, 'name' | 'expectedBytes'>[],
  finished: ReadonlySet<string>,
  sources: readonly SourceFile[],
  gone: ReadonlySet<string>,
): number {
  const done = new Set(finished);
  const left = new Set(sources.filter(({ file }) => !gone.has(basename(file.path))));
  let [bytes, peak] = [0, 0];
  for (const { name, expectedBytes } of planned) {
    if (!done.has(name)) bytes += expectedBytes;
    peak = Math.max(peak, bytes);
    done.add(name);
    for (const source of left) {
      if (source.neededFor.length === 0 || !source.neededFor.every((needed) => done.has(needed))) continue;
      bytes -= source.file.sizeBytes;
      left.delete(source);
    }
  }
  return peak;
}

/**
 * Deletes the files of a checkpoint that hold its weights while a pack is made from it. A file is deleted once every file of the pack that is made
 * from it is whole on the disk, has been read back and found correct, and the journal records this.
 */
export class CheckpointFileConsumer {
  constructor(
    private readonly sources: readonly SourceFile[],
    private readonly journal: PackingJournal,
    private readonly directory: string,
    private readonly tools: ByteTools,
  ) {}

  /** Deletes the files whose deletion an earlier run had recorded. */
  async resume(): Promise<void> {
    for (const { file } of this.sources) {
      if (this.journal.consumed.has(basename(file.path))) await remove(file.path);
    }
  }

  /** Call this when a file of the pack is finished. @throws STORAGE_FAILED, also if the file does not read back as it was written */
  async finished(file: FinishedFile): Promise<void> {
    const { name } = file.file;
    if (!this.journal.verified.has(name)) {
      const damages = await verifyFinishedFile(file, this.directory, this.tools);
      if (damages.length > 0) await this.dropDamaged(name, damages);
      await this.journal.record({ verified: name });
    }
    await this.consume((source) => source.neededFor.includes(name));
  }

  private async dropDamaged(name: string, damages: readonly PackDamage[]): Promise<never> {
    const { message } = damageError(this.directory, damages);
    await rm(join(this.directory, name), { force: true });
    throw new OdmoeError(
      'STORAGE_FAILED',
      `what was written is not what is read back: ${message.split('\n')[1]?.trim() ?? message}; the file is removed: check the disk, ` +
        'then run the same command again',
    );
  }

  /** The whole pack is finished: weight files from which nothing was made are deleted, too. */
  async finishedAll(): Promise<void> {
    await this.consume(() => true);
  }

  private async consume(concerns: (source: SourceFile) => boolean): Promise<void> {
    for (const source of this.sources) {
      const { path } = source.file;
      if (!concerns(source) || this.journal.consumed.has(basename(path))) continue;
      if (!source.neededFor.every((needed) => this.journal.verified.has(needed))) continue;
      await this.journal.record({ consumed: await consumedFile(source.file) });
      await remove(path);
    }
  }
}

async function consumedFile({ path, sizeBytes, modifiedMs, headerDigest }: SafetensorsFile): Promise<ConsumedFile> {
  const [header, found] = [await readHeaderText(path), await fileState(path)];
  if (found?.size !== sizeBytes || found.mtimeMs !== modifiedMs || sha256Hex(header) !== headerDigest) {
    throw new OdmoeError('STORAGE_FAILED', `${path}: has changed while it was packed; it is not deleted: pack again`);
  }
  return {
    name: basename(path),
    size_bytes: sizeBytes,
    modified_ms: modifiedMs,
    header: new TextDecoder('utf-8', { ignoreBOM: true }).decode(header),
  };
}

async function readHeaderText(path: string): Promise<Buffer> {
  try {
    const handle = await openFile(path);
    try {
      const length = await readExactly(handle, path, 0, HEADER_LENGTH_BYTES);
      return await readExactly(handle, path, HEADER_LENGTH_BYTES, Number(length.readBigUInt64LE(0)));
    } finally {
      await handle.close();
    }
  } catch (thrown) {
    throw readFailure(thrown, path, CHECKPOINT_FILE_ERRORS);
  }
}

/** True if another file has the name of a deleted one. If the deletion was cut short, the same file may still be there. */
export async function isAnotherFile(consumed: ConsumedFile, path: string): Promise<boolean> {
  const found = await fileState(path);
  return found !== null && (found.size !== consumed.size_bytes || found.mtimeMs !== consumed.modified_ms);
}

async function fileState(path: string): Promise<{ size: number; mtimeMs: number } | null> {
  try {
    return await stat(path);
  } catch (thrown) {
    if (['ENOENT', 'ENOTDIR'].includes(systemErrorCode(thrown))) return null;
    throw readFailure(thrown, path, CHECKPOINT_FILE_ERRORS);
  }
}

/** The data of a deleted weight file, from the journal. @throws MODEL_CORRUPT */
export function goneFile(consumed: ConsumedFile, path: string): SafetensorsFile {
  const header = new TextEncoder().encode(consumed.header);
  return {
    path,
    sizeBytes: consumed.size_bytes,
    modifiedMs: consumed.modified_ms,
    headerDigest: sha256Hex(header),
    tensors: parseSafetensorsHeader(header, consumed.size_bytes, path),
  };
}

/** Deletes a file. For a link, as in download caches, its target is deleted, too. */
async function remove(path: string): Promise<void> {
  try {
    if (!(await fileExists(path))) return;
    const target = await realpath(path).catch(() => path);
    await rm(target, { force: true });
    await rm(path, { force: true });
    await syncDirectory(dirname(path));
  } catch (thrown) {
    throw readFailure(thrown, path, CHECKPOINT_FILE_ERRORS);
  }
}
