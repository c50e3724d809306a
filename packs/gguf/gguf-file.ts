import type { FileHandle } from 'node:fs/promises';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fileExists, openFile, readFailure, refuseWrongDownloadAt } from '../../shared/base/files/read-file.js';
import { corruptGguf, GGUF_FILE_ERRORS } from './gguf-errors.js';
import { type GgufByteSource, GgufHeaderBytes } from './gguf-header-bytes.js';
import { parseGgufHeader } from './gguf-header.js';
import { checkPart, joinParts, readPartName, type GgufFile } from './gguf-parts.js';
import { type GgufModel, type GgufTensor, ROPE_FACTORS_TENSOR } from './gguf-types.js';

/** Most missing parts that a message names. */
const NAMED_PARTS = 5;
/** Most pairs of a head. Models have up to 256. */
const MOST_PAIRS = 65_536;
const F32_BYTES = 4;

/** A file of a model, opened for its header. */
export interface OpenedGguf {
  source: GgufByteSource;
  modifiedMs: number;
  close(): Promise<void>;
}

/**
 * Reads and checks the headers of a model's files, and the factors of its rope; no other tensor data is read.
 * @param path of the only file, or of any part of a split model (NAME-00001-of-00003.gguf); the other parts lie beside it
 * @throws MODEL_NOT_FOUND, MODEL_CORRUPT, MODEL_UNSUPPORTED, STORAGE_FAILED
 */
export async function readGgufModel(path: string): Promise<GgufModel> {
  const name = readPartName(path);
  if (name !== null) await requireParts(name.paths);
  return readGgufFiles(path, openOnDisk);
}

/** As readGgufModel, for files that lie elsewhere: `open` opens each by the path that it has, or will have, here. */
export async function readGgufFiles(path: string, open: (path: string) => Promise<OpenedGguf>): Promise<GgufModel> {
  const [firstPath = path, ...otherPaths] = readPartName(path)?.paths ?? [];
  const count = 1 + otherPaths.length;
  const files: [GgufFile, ...GgufFile[]] = [await readPart(firstPath, 0, count, open)];
  for (const otherPath of otherPaths) files.push(await readPart(otherPath, files.length, count, open));
  const model = joinParts(files);
  const factors = model.tensors.get(ROPE_FACTORS_TENSOR);
  return factors?.type === 'F32' ? { ...model, ropeFactors: await readRopeFactors(factors, open) } : model;
}

type Open = typeof openOnDisk;

/** @throws MODEL_CORRUPT, STORAGE_FAILED */
async function readRopeFactors(
  { name, path, offsetBytes, sizeBytes }: GgufTensor,
  open: Open,
): Promise<readonly number[]> {
  if (sizeBytes > F32_BYTES * MOST_PAIRS) {
    throw corruptGguf(path, `tensor ${name} has ${sizeBytes / F32_BYTES} values, expected at most ${MOST_PAIRS}`);
  }
  const bytes = Buffer.alloc(sizeBytes);
  await withOpened(path, open, ({ source }) => source.read(offsetBytes, bytes));
  return Array.from({ length: sizeBytes / F32_BYTES }, (_, pair) => bytes.readFloatLE(pair * F32_BYTES));
}

async function withOpened<Result>(
  path: string,
  open: Open,
  use: (opened: OpenedGguf) => Promise<Result>,
): Promise<Result> {
  try {
    const opened = await open(path);
    try {
      return await use(opened);
    } finally {
      await opened.close();
    }
  } catch (thrown) {
    throw readFailure(thrown, path, GGUF_FILE_ERRORS);
  }
}

async function requireParts(paths: readonly string[]): Promise<void> {
  const missing: string[] = [];
  for (const path of paths) if (!(await fileExists(path))) missing.push(path);
  if (missing.length === 0) return;
  const more = missing.length > NAMED_PARTS ? `, and ${missing.length - NAMED_PARTS} more` : '';
  throw new OdmoeError(
    GGUF_FILE_ERRORS.missing,
    `${missing.slice(0, NAMED_PARTS).join(', ')}${more}: no such file, one of the ${paths.length} parts of the model; ` +
      'download the missing parts to the folder of the others',
  );
}

async function readPart(path: string, index: number, count: number, open: Open): Promise<GgufFile> {
  const file = await withOpened(path, open, async ({ source, modifiedMs }) => {
    const header = await parseGgufHeader(new GgufHeaderBytes(source, path));
    return { part: { path, sizeBytes: source.sizeBytes, modifiedMs, headerDigest: header.digest }, header };
  });
  checkPart(file, index, count);
  return file;
}

async function openOnDisk(path: string): Promise<OpenedGguf> {
  await refuseWrongDownloadAt(path, GGUF_FILE_ERRORS.invalid);
  const handle = await openFile(path);
  try {
    const { size, mtimeMs } = await handle.stat();
    return {
      source: { sizeBytes: size, read: (offsetBytes, into) => fillFrom(handle, path, offsetBytes, into) },
      modifiedMs: mtimeMs,
      close: () => handle.close(),
    };
  } catch (thrown) {
    await handle.close();
    throw thrown;
  }
}

async function fillFrom(handle: FileHandle, path: string, offsetBytes: number, into: Uint8Array): Promise<void> {
  let done = 0;
  while (done < into.length) {
    const { bytesRead } = await handle.read(into, done, into.length - done, offsetBytes + done);
    if (bytesRead === 0) {
      const missing = into.length - done;
      throw corruptGguf(
        path,
        `ends at byte ${offsetBytes + done}, ${missing} bytes are missing; it was cut while in use`,
      );
    }
    done += bytesRead;
  }
}
