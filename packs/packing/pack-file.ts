import { createHash } from 'node:crypto';
import { rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ManifestFile } from '../format/manifest.js';
import { PARTIAL_SUFFIX } from '../format/pack-layout.js';
import { openCounted } from '../../shared/base/files/counted-file.js';
import { syncDirectory } from '../../shared/base/files/sync-directory.js';

/** The functions of an open file that packing uses. */
export interface WritableFile {
  write(bytes: Uint8Array, offset: number, length: number, position: number): Promise<{ bytesWritten: number }>;
  read(bytes: Uint8Array, offset: number, length: number, position: number): Promise<{ bytesRead: number }>;
  truncate(sizeBytes: number): Promise<void>;
  sync(): Promise<void>;
  close(): Promise<void>;
}

/** Opens a new, empty file for writing and reading back. It is a parameter so that a test can make writes fail. */
export type OpenFile = (path: string) => Promise<WritableFile>;

export const openOnDisk: OpenFile = (path) => openCounted(path, 'w+');

const READ_BACK_BYTES = 1024 * 1024;

/**
 * A file of a pack in the making. It is written as NAME.partial, at any offset. Its SHA-256 is computed in order by reading back complete bytes
 * (they were just written, so they come from memory). Then the file is synced and renamed to NAME.
 */
export class PackFile {
  private readonly hash = createHash('sha256');
  private readonly readBack = new Uint8Array(READ_BACK_BYTES);
  private hashedBytes = 0;

  private constructor(
    private readonly directory: string,
    private readonly name: string,
    private readonly file: WritableFile,
  ) {}

  static async create(directory: string, name: string, openFile: OpenFile): Promise<PackFile> {
    return new PackFile(directory, name, await openFile(join(directory, name + PARTIAL_SUFFIX)));
  }

  async writeAt(offsetBytes: number, bytes: Uint8Array): Promise<void> {
    let done = 0;
    while (done < bytes.length) {
      const { bytesWritten } = await this.file.write(bytes, done, bytes.length - done, offsetBytes + done);
      done += bytesWritten;
    }
  }

  /** Everything before endBytes has its final content; bytes that were never written there are zeros. */
  async completeThrough(endBytes: number): Promise<void> {
    await this.file.truncate(endBytes);
    while (this.hashedBytes < endBytes) {
      const wanted = Math.min(READ_BACK_BYTES, endBytes - this.hashedBytes);
      const { bytesRead } = await this.file.read(this.readBack, 0, wanted, this.hashedBytes);
      if (bytesRead === 0) {
        throw new OdmoeError(
          'STORAGE_FAILED',
          `${join(this.directory, this.name + PARTIAL_SUFFIX)}: ends at byte ${this.hashedBytes}, ${endBytes} were written; ` +
            'something else changes the directory: pack again',
        );
      }
      this.hash.update(this.readBack.subarray(0, bytesRead));
      this.hashedBytes += bytesRead;
    }
  }

  /** Syncs the file and gives it its final name. */
  async finish(): Promise<ManifestFile> {
    await this.file.sync();
    await this.file.close();
    const path = join(this.directory, this.name);
    await rename(path + PARTIAL_SUFFIX, path);
    await syncDirectory(dirname(path));
    return { name: this.name, size_bytes: this.hashedBytes, sha256: this.hash.digest('hex') };
  }

  /** Deletes the unfinished file. */
  async abandon(): Promise<void> {
    await this.file.close();
    await rm(join(this.directory, this.name + PARTIAL_SUFFIX), { force: true });
  }
}
