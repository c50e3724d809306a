import { createHash, type Hash } from 'node:crypto';
import { constants, rename, rm, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { openCounted } from '../../shared/base/files/counted-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { syncDirectory } from '../../shared/base/files/sync-directory.js';
import { type HubBody, type HubClient, PassingFailure } from './hub-client.js';
import type { HubFile } from './hub-files.js';
import type { HubSnapshot } from './hub-repository.js';

/** End of the name of a file that is being downloaded. */
export const PART_SUFFIX = '.part';
/** Time of change of downloaded files: one moment for all, so that a file that was deleted and downloaded again counts as the same one. */
export const DOWNLOADED_AT_MS = Date.UTC(2000, 0, 1);

const READ_BYTES = 4 * 1024 * 1024;
/** Downloads from the beginning before a file with another checksum than the hub names is given up. */
const WHOLE_TRIES = 2;

/**
 * Downloads a file of a snapshot to `path`, through `path`.part. A part that is there is hashed and continued; after a cut, the rest is asked for.
 * The file gets its name when its bytes have the checksum that the hub names, and are on the disk.
 * @param onBytes called with the bytes of the file that are here by now
 * @throws MODEL_CORRUPT if the hub sends other bytes than it names, as HubClient.askJson, STORAGE_FULL, STORAGE_FAILED
 */
export async function downloadFile(
  hub: HubClient,
  snapshot: HubSnapshot,
  file: HubFile,
  path: string,
  onBytes: (doneBytes: number) => void = () => undefined,
): Promise<void> {
  const part = path + PART_SUFFIX;
  try {
    for (let tries = 1; !(await downloadPart(hub, snapshot, file, part, onBytes)); tries += 1) {
      await rm(part, { force: true });
      if (tries >= WHOLE_TRIES) throw otherBytes(hub, snapshot, file);
      hub.tell(`${snapshot.id}: what has come of ${file.path} is not what the hub names; downloading it again`);
    }
    await rename(part, path);
    await syncDirectory(dirname(path));
  } catch (thrown) {
    throw writeFailure(thrown, path, file.sizeBytes);
  }
}

function otherBytes({ endpoint }: HubClient, { id, commit }: HubSnapshot, { path }: HubFile): OdmoeError {
  return new OdmoeError(
    'MODEL_CORRUPT',
    `${id}: ${endpoint} sends other bytes of ${path} than it names for ${commit}, twice; what came is removed: ` +
      'check HF_ENDPOINT and what stands between, then run the same command again',
  );
}

/** Returns false if the file that arrived has another size or checksum than the hub names. */
async function downloadPart(
  hub: HubClient,
  snapshot: HubSnapshot,
  file: HubFile,
  part: string,
  onBytes: (doneBytes: number) => void,
): Promise<boolean> {
  const handle = await openCounted(part, constants.O_RDWR | constants.O_CREAT);
  try {
    const arriving = new ArrivingFile(file, handle, onBytes);
    await arriving.resume();
    const request = { id: snapshot.id, revision: snapshot.commit, file: file.path };
    let knownBytes = arriving.doneBytes;
    const hasProgress = (): boolean => {
      const hasGrown = arriving.doneBytes > knownBytes;
      knownBytes = arriving.doneBytes;
      return hasGrown;
    };
    await hub.withTries(request, async () => arriving.receive(hub, snapshot), hasProgress);
    if (!arriving.isRight()) return false;
    await handle.utimes(DOWNLOADED_AT_MS / 1000, DOWNLOADED_AT_MS / 1000);
    await handle.sync();
    return true;
  } finally {
    await handle.close();
  }
}

/** A file of which more and more arrives, with the checksum of what is here. */
class ArrivingFile {
  doneBytes = 0;
  private hash: Hash;
  /** The hub has sent what cannot belong to the file. */
  private isOther = false;

  constructor(
    private readonly file: HubFile,
    private readonly handle: FileHandle,
    private readonly onBytes: (doneBytes: number) => void,
  ) {
    this.hash = beginHash(file);
  }

  /** Hashes what an earlier run left. */
  async resume(): Promise<void> {
    const { size } = await this.handle.stat();
    if (size > this.file.sizeBytes) return this.beginAnew();
    const buffer = Buffer.allocUnsafe(Math.min(READ_BYTES, Math.max(1, size)));
    while (this.doneBytes < size) {
      const { bytesRead } = await this.handle.read(buffer, 0, buffer.length, this.doneBytes);
      if (bytesRead === 0) break;
      this.take(buffer.subarray(0, bytesRead));
    }
  }

  /** Receives what is missing. @throws PassingFailure, and as HubClient.openFile */
  async receive(hub: HubClient, snapshot: HubSnapshot): Promise<void> {
    if (this.doneBytes >= this.file.sizeBytes) return;
    const body = await hub.openFile(snapshot, this.file, this.doneBytes);
    try {
      await this.receiveBody(body);
    } finally {
      body.close();
    }
    if (!this.isOther && this.doneBytes < this.file.sizeBytes) {
      throw new PassingFailure(
        `${snapshot.id}: ${this.file.path} ended early; run the same command again, which continues where this one stopped`,
      );
    }
  }

  private async receiveBody({ fromBytes, wholeBytes, chunks }: HubBody): Promise<void> {
    const { sizeBytes } = this.file;
    if (fromBytes === 0 && this.doneBytes > 0) await this.beginAnew();
    this.isOther = fromBytes !== this.doneBytes || (wholeBytes !== null && wholeBytes !== sizeBytes);
    if (this.isOther) return;
    for await (const chunk of chunks) {
      this.isOther = this.doneBytes + chunk.length > sizeBytes;
      if (this.isOther) return;
      await writeAll(this.handle, chunk, this.doneBytes);
      this.take(chunk);
    }
  }

  /** True if all bytes are here and have the file's checksum. Call it once, at the end. */
  isRight(): boolean {
    return !this.isOther && this.doneBytes === this.file.sizeBytes && this.hash.digest('hex') === this.file.digest.hex;
  }

  private take(bytes: Uint8Array): void {
    this.hash.update(bytes);
    this.doneBytes += bytes.length;
    this.onBytes(this.doneBytes);
  }

  private async beginAnew(): Promise<void> {
    await this.handle.truncate(0);
    this.hash = beginHash(this.file);
    this.doneBytes = 0;
    this.onBytes(0);
  }
}

function beginHash({ digest, sizeBytes }: HubFile): Hash {
  if (digest.kind === 'sha256') return createHash('sha256');
  return createHash('sha1').update(`blob ${sizeBytes}\0`);
}

async function writeAll(handle: FileHandle, bytes: Uint8Array, offsetBytes: number): Promise<void> {
  for (let done = 0; done < bytes.length;) {
    const { bytesWritten } = await handle.write(bytes, done, bytes.length - done, offsetBytes + done);
    done += bytesWritten;
  }
}
