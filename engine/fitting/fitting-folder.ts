/** The folder in a pack that keeps the work of fitting until it is finished: what is there is not done again after an interruption. */
import { chmod, constants, readdir, rm, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { crc32c } from '../../native/index.js';
import { FITTING_DIRECTORY } from '../../packs/format/pack-layout.js';
import { predictorTensors } from '../../packs/predictor/predictor-layout.js';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { openCounted } from '../../shared/base/files/counted-file.js';
import { makeDirectories } from '../../shared/base/files/make-directories.js';
import { acquireProcessLock, type ProcessLock } from '../../shared/base/files/process-lock.js';
import {
  fileExists,
  type FileErrors,
  openFile,
  readBoundedFile,
  readFailure,
  readJsonFile,
} from '../../shared/base/files/read-file.js';
import { replaceFile } from '../../shared/base/files/replace-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import type { ExpertMapsShape, LayerMaps } from '../../shared/model/expert-maps.js';
import type { RecordedRows } from './record-layers.js';

const VERSION = 1;
const WORK_FILE = 'work.json';
const LOCK_FILE = 'fitting.lock';
const BATCH_LIMIT_BYTES = 64 * 1024 * 1024;
/** Bytes of one read: the system reads at most 2 GiB at once. */
const READ_BYTES = 64 * 1024 * 1024;
const CHECKSUM_BYTES = 4;
const VALUE_BYTES = 4;
/** States and answers tell of users' texts, so only this user may read them. */
const PRIVATE_DIRECTORY = 0o700;
const PRIVATE_FILE = 0o600;

/** The inputs of a predictor: work for other inputs is of no use. */
export interface FittingInputs {
  readonly odmoeVersion: string;
  readonly sourceFingerprint: string;
  readonly seed: number;
  readonly tokens: number;
  readonly text: string;
  readonly units: number;
  readonly distances: readonly number[];
}

const workSchema = z.strictObject({
  version: z.literal(VERSION),
  inputs: z.unknown(),
  /** Rows that are recorded at every layer. */
  recorded_rows: z.int().min(0),
});

const batchSchema = z.array(z.array(z.int().min(0)));

/** The rows that the folder's files hold for each layer. */
export interface RowSizes {
  readonly hiddenSize: number;
  readonly expertsPerToken: number;
}

export class FittingFolder {
  /** Files with rows that may not be on the disk yet. */
  private readonly unsynced = new Set<string>();

  private constructor(
    readonly directory: string,
    private readonly lock: ProcessLock,
    private readonly errors: FileErrors,
    private readonly inputs: FittingInputs,
    private readonly sizes: RowSizes,
    private rows: number,
  ) {}

  /**
   * Takes the folder, which only this user may enter. Work for other inputs is deleted.
   * @throws LockHeldError (STORAGE_FAILED) while another process fits the pack, STORAGE_FULL, STORAGE_FAILED
   */
  static async open(packDirectory: string, inputs: FittingInputs, sizes: RowSizes): Promise<FittingFolder> {
    const directory = join(packDirectory, FITTING_DIRECTORY);
    try {
      await makeDirectories(directory, PRIVATE_DIRECTORY);
      // One that an earlier version has made is open to others.
      await chmod(directory, PRIVATE_DIRECTORY);
    } catch (thrown) {
      throw writeFailure(thrown, directory, null);
    }
    const lock = await acquireProcessLock(join(directory, LOCK_FILE), {
      held: (holder, orRemove) => `${packDirectory}: ${holder} is fitting it; wait for it${orRemove}`,
      keepsComingBack: (path) => `${path}: keeps coming back; remove it when nothing fits ${packDirectory}`,
      takenAway: `${packDirectory}: the lock was taken away by another process; run odmoe fit again`,
      again: 'run odmoe fit again',
    });
    const errors: FileErrors = {
      missing: 'STORAGE_FAILED',
      invalid: 'STORAGE_FAILED',
      remedy: `remove ${directory} and run odmoe fit again`,
    };
    const folder = new FittingFolder(directory, lock, errors, inputs, sizes, 0);
    try {
      await folder.goOn();
      return folder;
    } catch (thrown) {
      await lock.release();
      throw thrown;
    }
  }

  /** Rows that are recorded at every layer: the first ones. */
  get recordedRows(): number {
    return this.rows;
  }

  /** Says that rows before this one are recorded. They are on the disk before it says so. */
  async setRecordedRows(rows: number): Promise<void> {
    for (const name of this.unsynced) {
      await syncFile(join(this.directory, name));
      this.unsynced.delete(name);
    }
    const work: z.infer<typeof workSchema> = { version: VERSION, inputs: this.inputs, recorded_rows: rows };
    await replaceFile(join(this.directory, WORK_FILE), `${JSON.stringify(work)}\n`, PRIVATE_FILE);
    this.rows = rows;
  }

  /** The sequences of a batch of the model's own answers; null: it was not finished. */
  async batch(number: number): Promise<number[][] | null> {
    const path = join(this.directory, batchName(number));
    if (!(await fileExists(path))) return null;
    const parsed = batchSchema.safeParse(await readJsonFile(path, BATCH_LIMIT_BYTES, this.errors));
    if (parsed.success) return parsed.data;
    throw new OdmoeError('STORAGE_FAILED', `${path}: not a list of sequences; ${this.errors.remedy}`);
  }

  async keepBatch(number: number, sequences: readonly (readonly number[])[]): Promise<void> {
    await replaceFile(join(this.directory, batchName(number)), `${JSON.stringify(sequences)}\n`, PRIVATE_FILE);
  }

  /** Writes rows of a layer to their place. They count, and are on the disk, when setRecordedRows has said so. */
  async record({ layer, firstRow, states, choices }: RecordedRows): Promise<void> {
    const { hiddenSize, expertsPerToken } = this.sizes;
    await this.writeAt(statesName(layer), firstRow * hiddenSize * VALUE_BYTES, states);
    await this.writeAt(choicesName(layer), firstRow * expertsPerToken * VALUE_BYTES, choices);
  }

  /** The states that rows [first, first + count) of a layer met: count x hiddenSize. */
  async states(layer: number, first: number, count: number): Promise<Float32Array> {
    const values = new Float32Array(count * this.sizes.hiddenSize);
    await this.readInto(statesName(layer), first * this.sizes.hiddenSize * VALUE_BYTES, values);
    return values;
  }

  /** The experts that these rows chose: count x expertsPerToken. */
  async choices(layer: number, first: number, count: number): Promise<Int32Array> {
    const values = new Int32Array(count * this.sizes.expertsPerToken);
    await this.readInto(choicesName(layer), first * this.sizes.expertsPerToken * VALUE_BYTES, values);
    return values;
  }

  /** The trained maps of a layer; null: they were not finished. */
  async maps(shape: ExpertMapsShape, layer: number): Promise<LayerMaps | null> {
    const path = join(this.directory, mapsName(layer));
    if (!(await fileExists(path))) return null;
    const tensors = predictorTensors(shape).filter((tensor) => tensor.layer === layer);
    const valueBytes = tensors.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    const bytes = await readBoundedFile(path, valueBytes + CHECKSUM_BYTES, this.errors);
    const values = bytes.subarray(0, valueBytes);
    if (bytes.length < valueBytes + CHECKSUM_BYTES || bytes.readUInt32LE(valueBytes) !== crc32c(values, 0)) return null;
    let at = 0;
    const parts = tensors.map(({ part, dtype, sizeBytes }) => {
      const { buffer } = new Uint8Array(values.subarray(at, (at += sizeBytes)));
      return [part, dtype === 'F32' ? new Float32Array(buffer) : new Int8Array(buffer)];
    });
    return Object.fromEntries(parts) as LayerMaps;
  }

  async keepMaps(shape: ExpertMapsShape, layer: number, maps: LayerMaps): Promise<void> {
    const parts = predictorTensors(shape)
      .filter((tensor) => tensor.layer === layer)
      .map(({ part, sizeBytes }) => {
        const values = maps[part];
        assertInvariant(values.byteLength === sizeBytes, () => `the ${part} of layer ${layer} have another size.`);
        return new Uint8Array(values.buffer, values.byteOffset, sizeBytes);
      });
    const values = Buffer.concat(parts);
    const checksum = Buffer.alloc(CHECKSUM_BYTES);
    checksum.writeUInt32LE(crc32c(values, 0), 0);
    await replaceFile(join(this.directory, mapsName(layer)), Buffer.concat([values, checksum]), PRIVATE_FILE);
  }

  /** Lets another process go on. A folder in which no work is done is deleted. */
  async close(): Promise<void> {
    const names = await readdir(this.directory);
    if (names.every((name) => name === WORK_FILE || name.startsWith(LOCK_FILE))) await this.remove();
    else await this.lock.release();
  }

  /** Deletes the folder: the predictor is written. */
  async remove(): Promise<void> {
    try {
      await this.deleteContent();
    } catch (thrown) {
      throw writeFailure(thrown, this.directory, null);
    } finally {
      await this.lock.release();
    }
    try {
      await rmdir(this.directory);
    } catch (thrown) {
      // Another process may have taken the folder since, or have deleted it.
      if (!['ENOTEMPTY', 'ENOENT'].includes(systemErrorCode(thrown))) throw writeFailure(thrown, this.directory, null);
    }
  }

  private async goOn(): Promise<void> {
    const path = join(this.directory, WORK_FILE);
    if (await fileExists(path)) {
      // Work begins anew where its file is damaged, but not where the disk cannot read it now.
      const errors: FileErrors = { ...this.errors, invalid: 'PACK_CORRUPT' };
      const found = await readJsonFile(path, BATCH_LIMIT_BYTES, errors).catch((thrown: unknown) => {
        if (toOdmoeError(thrown).code === 'PACK_CORRUPT') return null;
        throw thrown;
      });
      const parsed = workSchema.safeParse(found);
      if (parsed.success && JSON.stringify(parsed.data.inputs) === JSON.stringify(this.inputs)) {
        this.rows = parsed.data.recorded_rows;
        return;
      }
    }
    await this.deleteContent();
    await this.setRecordedRows(0);
  }

  /** Deletes all but the lock. */
  private async deleteContent(): Promise<void> {
    for (const name of await readdir(this.directory)) {
      if (!name.startsWith(LOCK_FILE)) await rm(join(this.directory, name), { recursive: true, force: true });
    }
  }

  /** Writes values to their place in a file. */
  private async writeAt(name: string, offsetBytes: number, values: Float32Array | Int32Array): Promise<void> {
    const path = join(this.directory, name);
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    try {
      const file = await openCounted(path, constants.O_WRONLY | constants.O_CREAT, PRIVATE_FILE);
      this.unsynced.add(name);
      try {
        for (let done = 0; done < bytes.length;) {
          done += (await file.write(bytes, done, bytes.length - done, offsetBytes + done)).bytesWritten;
        }
      } finally {
        await file.close();
      }
    } catch (thrown) {
      throw writeFailure(thrown, path, null);
    }
  }

  private async readInto(name: string, offsetBytes: number, values: Float32Array | Int32Array): Promise<void> {
    const path = join(this.directory, name);
    const bytes = new Uint8Array(values.buffer);
    try {
      const file = await openFile(path);
      try {
        for (let done = 0; done < bytes.length;) {
          const wanted = Math.min(READ_BYTES, bytes.length - done);
          const { bytesRead } = await file.read(bytes, done, wanted, offsetBytes + done);
          if (bytesRead === 0) throw new OdmoeError('STORAGE_FAILED', `${path}: was cut; ${this.errors.remedy}`);
          done += bytesRead;
        }
      } finally {
        await file.close();
      }
    } catch (thrown) {
      throw readFailure(thrown, path, this.errors);
    }
  }
}

const batchName = (number: number): string => `answers-${number}.json`;
const statesName = (layer: number): string => `states-${layer}.bin`;
const choicesName = (layer: number): string => `choices-${layer}.bin`;
const mapsName = (layer: number): string => `maps-${layer}.bin`;

async function syncFile(path: string): Promise<void> {
  try {
    const file = await openCounted(path, constants.O_WRONLY);
    try {
      await file.datasync();
    } finally {
      await file.close();
    }
  } catch (thrown) {
    throw writeFailure(thrown, path, null);
  }
}
