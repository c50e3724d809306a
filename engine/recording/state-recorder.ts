/** Writes the states and routers' choices of main's answers beside its pack while it serves (main.record_tokens). */
import { constants, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { lockFile } from '../../native/index.js';
import type { Pack } from '../../packs/format/open-pack.js';
import { RECORDED_FILE } from '../../packs/format/pack-layout.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fileFailure } from '../../shared/base/errors/system-failure.js';
import { openCounted } from '../../shared/base/files/counted-file.js';
import { requireFreeBytes, writeFailure } from '../../shared/base/files/storage-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { LEAST_RECORDED_TOKENS } from '../../shared/settings/setting-limits.js';
import {
  readRecordedHeader,
  RECORDED_HEADER_BYTES,
  recordedHeader,
  RecordedRow,
  recordedRowBytes,
  type RecordedSizes,
} from './recorded-row.js';

/** States of users' texts: nobody else may read them. */
const PRIVATE_FILE = 0o600;
/** Rows that wait for the disk; further ones are left out, so that no answer waits. */
const WAITING_BYTES = 64 * 1024 * 1024;
/** Rows that were written come to the disk when so many bytes have, and at the end: more often, it would hinder reads of experts. */
const SYNCED_BYTES = 64 * 1024 * 1024;
/** Damaged rows at the end, as a loss of power may leave them, are cut off within so many bytes. odmoe fit leaves out those before. */
const MOST_CUT_BYTES = 256 * 1024 * 1024;
/** A reader that looks whether somebody writes holds a lock for a moment. */
const LOCK_TRIES = 10;
const LOCK_EVERY_MS = 100;

export interface RecorderWanted {
  readonly pack: Pick<Pack, 'directory' | 'manifest' | 'shape'>;
  /** Rows after which nothing more is recorded. */
  readonly tokens: number;
}

/** Takes rows of answers. No call fails: what cannot be written ends the recording, and the log says so. */
export interface StateRecorder {
  readonly sizes: RecordedSizes;
  /** False: the file has all rows that are wanted, or cannot be written. */
  readonly isOpen: boolean;
  /** Takes a sealed row, which does not change any more. */
  add(row: RecordedRow): void;
  /** Writes what waits. Further calls do nothing. */
  close(): Promise<void>;
}

type RecorderRuntime = Pick<Runtime, 'outside' | 'sleep'>;

export type OpenRecorder = (
  wanted: RecorderWanted,
  runtime: RecorderRuntime,
  log: Logger,
) => Promise<StateRecorder | null>;

/** Opens the file of the pack, and goes on behind its rows. Null: nothing is to be recorded, or cannot be, and the log says why. Never rejects. */
export const openRecorder: OpenRecorder = async (wanted, runtime, log) => {
  const path = join(wanted.pack.directory, RECORDED_FILE);
  try {
    const opened = await openRecorded(path, wanted, runtime);
    const recorder = new FileRecorder(path, wanted, opened, runtime, log);
    const { tokens } = wanted;
    const limitBytes = RECORDED_HEADER_BYTES + tokens * recordedRowBytes(wanted.pack.shape);
    log.info("main records the states and routers' choices of its answers", {
      path,
      tokens,
      limitBytes,
      recorded: opened.rows,
    });
    if (tokens < LEAST_RECORDED_TOKENS) {
      log.warn('odmoe fit --record needs more tokens than main is to record', {
        tokens,
        needed: LEAST_RECORDED_TOKENS,
      });
    }
    if (opened.rows < tokens) return recorder;
    await recorder.close();
  } catch (thrown) {
    log.warn('nothing is recorded for odmoe fit', { error: recordingFailure(thrown, path) });
  }
  return null;
};

interface OpenedFile {
  readonly file: FileHandle;
  readonly rows: number;
}

async function openRecorded(path: string, wanted: RecorderWanted, runtime: RecorderRuntime): Promise<OpenedFile> {
  const flags = constants.O_RDWR | constants.O_CREAT | constants.O_NONBLOCK;
  // By itself, so that a simulated process knows the file, and closes it when it is killed.
  const file = await runtime.outside(() => openCounted(path, flags, PRIVATE_FILE));
  try {
    await runtime.outside(() => requireFile(file, path));
    await takeLock(file, path, runtime);
    return { file, rows: await runtime.outside(() => prepare(file, path, wanted)) };
  } catch (thrown) {
    await runtime.outside(() => file.close());
    throw thrown;
  }
}

async function requireFile(file: FileHandle, path: string): Promise<void> {
  if (!(await file.stat()).isFile()) throw new OdmoeError('STORAGE_FAILED', `${path}: not a regular file; remove it`);
}

async function takeLock(file: FileHandle, path: string, runtime: RecorderRuntime): Promise<void> {
  for (let tries = 1; !lockFile(file.fd, false); tries += 1) {
    if (tries === LOCK_TRIES) {
      throw new OdmoeError('STORAGE_FAILED', `${path}: another process records into it; stop one of the two`);
    }
    await runtime.sleep(LOCK_EVERY_MS);
  }
}

/** Makes the file ready for further rows. Returns the number of those that it has. */
async function prepare(file: FileHandle, path: string, wanted: RecorderWanted): Promise<number> {
  // Somebody may have copied it here with other rights.
  await file.chmod(PRIVATE_FILE);
  const rows = await goOn(file, path, wanted);
  const { pack, tokens } = wanted;
  await requireFreeBytes(pack.directory, Math.max(0, tokens - rows) * recordedRowBytes(pack.shape));
  return rows;
}

/** Makes the file one that ends behind a whole row. Returns the number of its rows. */
async function goOn(file: FileHandle, path: string, { pack, tokens }: RecorderWanted): Promise<number> {
  const { size } = await file.stat();
  const header = recordedHeader(pack, tokens);
  if (size < RECORDED_HEADER_BYTES) {
    await file.truncate(0);
    await writeAll(file, header, 0);
    return 0;
  }
  const found = new Uint8Array(RECORDED_HEADER_BYTES);
  await file.read(found, 0, found.length, 0);
  const before = readRecordedHeader(found, path, pack);
  const rows = await wholeRows(file, size, pack.shape);
  await file.truncate(RECORDED_HEADER_BYTES + rows * recordedRowBytes(pack.shape));
  if (before !== tokens) await writeAll(file, header, 0);
  return rows;
}

/** The rows without a part of one at the end, as a kill leaves it, and without damaged ones there, as a loss of power may leave them. */
async function wholeRows(file: FileHandle, size: number, sizes: RecordedSizes): Promise<number> {
  const bytes = recordedRowBytes(sizes);
  const complete = Math.floor((size - RECORDED_HEADER_BYTES) / bytes);
  const least = Math.max(0, complete - Math.ceil(MOST_CUT_BYTES / bytes));
  for (let rows = complete; rows > least; rows -= 1) {
    const last = new Uint8Array(bytes);
    await file.read(last, 0, bytes, RECORDED_HEADER_BYTES + (rows - 1) * bytes);
    if (new RecordedRow(sizes, last).isWhole) return rows;
  }
  return least;
}

async function writeAll(file: FileHandle, bytes: Uint8Array, offset: number): Promise<void> {
  for (let done = 0; done < bytes.length;) {
    done += (await file.write(bytes, done, bytes.length - done, offset + done)).bytesWritten;
  }
}

class FileRecorder implements StateRecorder {
  readonly sizes: RecordedSizes;
  private readonly file: FileHandle;
  private readonly limit: number;
  private waiting: RecordedRow[] = [];
  /** Rows that were taken, and those of them that are written. */
  private taken: number;
  private written: number;
  private unsyncedBytes = 0;
  private leftOut = 0;
  private takes = true;
  private writing: Promise<void> | null = null;
  private closing: Promise<void> | null = null;

  constructor(
    private readonly path: string,
    { pack, tokens }: RecorderWanted,
    { file, rows }: OpenedFile,
    private readonly runtime: RecorderRuntime,
    private readonly log: Logger,
  ) {
    const { expertLayers, hiddenSize, expertsPerToken } = pack.shape;
    this.sizes = { expertLayers, hiddenSize, expertsPerToken };
    this.file = file;
    this.limit = tokens;
    this.taken = rows;
    this.written = rows;
  }

  get isOpen(): boolean {
    return this.takes;
  }

  add(row: RecordedRow): void {
    if (!this.takes) return;
    if ((this.waiting.length + 1) * row.bytes.length > WAITING_BYTES) {
      if (this.leftOut === 0) {
        this.log.warn('the disk is too slow for all tokens of answers: some are not recorded', { path: this.path });
      }
      this.leftOut += 1;
      return;
    }
    this.waiting.push(row);
    this.taken += 1;
    this.takes = this.taken < this.limit;
    this.writing ??= this.writeWaiting();
  }

  close(): Promise<void> {
    this.takes = false;
    return (this.closing ??= this.end());
  }

  private async end(): Promise<void> {
    await this.writing;
    const { path, written: recorded, leftOut } = this;
    try {
      await this.sync();
    } catch (thrown) {
      const error = recordingFailure(thrown, path);
      this.log.warn('the last recorded states may be lost if this machine loses its power', { error });
    }
    try {
      await this.runtime.outside(() => this.file.close());
    } catch (thrown) {
      this.log.warn('the file of recorded states did not close', { error: recordingFailure(thrown, path) });
    }
    this.log.info('the file of recorded states is closed', { path, recorded, leftOut });
  }

  private async writeWaiting(): Promise<void> {
    try {
      for (let row = this.waiting.shift(); row !== undefined; row = this.waiting.shift()) {
        const { bytes } = row;
        const place = RECORDED_HEADER_BYTES + this.written * bytes.length;
        await this.runtime.outside(() => writeAll(this.file, bytes, place));
        this.written += 1;
        this.unsyncedBytes += bytes.length;
        if (this.unsyncedBytes >= SYNCED_BYTES) await this.sync();
      }
    } catch (thrown) {
      this.failed(thrown);
    }
    this.writing = null;
    if (this.written >= this.limit) {
      const { path, written: tokens, leftOut } = this;
      this.log.info('all tokens are recorded: odmoe fit --record trains with them', { path, tokens, leftOut });
    }
    if (!this.takes) void this.close();
  }

  private async sync(): Promise<void> {
    if (this.unsyncedBytes === 0) return;
    this.unsyncedBytes = 0;
    await this.runtime.outside(() => this.file.datasync());
  }

  /** A part of a row stays at the end of the file: the next start of main cuts it off, and odmoe fit leaves it out. */
  private failed(thrown: unknown): void {
    this.takes = false;
    this.waiting = [];
    this.log.warn('main records no more: the file cannot be written; answers go on', {
      recorded: this.written,
      error: recordingFailure(thrown, this.path),
    });
  }
}

function recordingFailure(thrown: unknown, path: string): OdmoeError {
  const failure = fileFailure(thrown);
  if (thrown instanceof OdmoeError || failure?.code !== 'STORAGE_FULL') return writeFailure(thrown, path, null);
  const message = `${path}: ${failure.what}; ${failure.advice} and start main again to record on`;
  return new OdmoeError('STORAGE_FULL', message, { cause: thrown });
}
