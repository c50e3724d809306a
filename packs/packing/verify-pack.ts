import { EXPERT_MATRICES } from '../../shared/model/tensor-source.js';
import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { type FileErrors, openFile, readFailure } from '../../shared/base/files/read-file.js';
import { readExactly } from '../checkpoint/safetensors-file.js';
import type { FinishedFile, ManifestExpert, ManifestExpertTensor, ManifestFile } from '../format/manifest.js';
import { contentExtents, matrixLabel, packExtents, type FileExtent } from '../format/extents.js';
import type { Pack } from '../format/open-pack.js';
import { matrixValues } from './matrix-values.js';
import type { ByteTools } from './packing-context.js';
import { READ_BYTES } from './source-reader.js';

const PACK_FILE_ERRORS: FileErrors = {
  missing: 'PACK_CORRUPT',
  invalid: 'PACK_CORRUPT',
  remedy: 'copy the pack again',
};

/** Most damages in the message of one error; the report has all. */
const DAMAGES_NAMED = 20;

/** A difference between a pack and its manifest. */
export interface PackDamage {
  file: string;
  /** The chunk or tensor; null: the whole file. */
  place: string | null;
  expected: string;
  found: string;
}

/**
 * Reads a whole pack and compares every file's size and SHA-256 and every chunk's CRC-32C. Then it recovers the values of every expert whose
 * chunks are undamaged, and compares their CRC-32C with that of the packed values.
 * @returns every damage found, in the order of files
 * @throws STORAGE_FAILED if a file cannot be read
 */
export async function verifyPack(
  pack: Pack,
  tools: ByteTools,
  onProgress?: (doneBytes: number, totalBytes: number) => void,
): Promise<PackDamage[]> {
  const { files, draft_head: head } = pack.manifest;
  const experts = [...pack.manifest.experts, ...(head?.experts ?? [])];
  const all = packExtents(pack.manifest);
  const fileBytes = files.reduce((sum, file) => sum + file.size_bytes, 0);
  const valueBytes = experts.reduce((sum, expert) => sum + expertBytes(expert), 0);
  let doneBytes = 0;
  const progress = (bytes: number): void => {
    doneBytes += bytes;
    onProgress?.(doneBytes, fileBytes + valueBytes);
  };
  const damages: PackDamage[] = [];
  for (const file of files) {
    const own = { file, extents: all.filter((extent) => extent.file === file.name), experts };
    damages.push(...(await verifyFileOf(own, pack.directory, tools, progress)));
  }
  return damages;
}

/** As verifyPack, for one file that has just been written. */
export async function verifyFinishedFile(
  { file, dense, experts }: FinishedFile,
  directory: string,
  tools: ByteTools,
): Promise<PackDamage[]> {
  return verifyFileOf(
    { file, extents: contentExtents({ dense, experts }, file.name), experts },
    directory,
    tools,
    () => undefined,
  );
}

export interface FileContents {
  file: ManifestFile;
  extents: readonly FileExtent[];
  /** A list that includes the experts in this file. */
  experts: readonly ManifestExpert[];
}

/** Compares one file's size, SHA-256 and checksums, and recovers the values of the experts in it. @throws PACK_CORRUPT if it is missing */
export async function verifyFileOf(
  { file, extents, experts }: FileContents,
  directory: string,
  tools: ByteTools,
  progress: (bytes: number) => void,
): Promise<PackDamage[]> {
  const verifier = new FileVerifier(file, extents, tools);
  const path = join(directory, file.name);
  for await (const bytes of bytesOfFile(path)) {
    verifier.push(bytes);
    progress(bytes.length);
  }
  const found = verifier.finish();
  const own = experts.filter((expert) => expert.file === file.name);
  return [...found, ...(await verifyValues(own, path, found, tools, progress))];
}

/** Recovers the values of a file's experts. Matrices with a chunk that is known to be damaged are left out. */
async function verifyValues(
  experts: readonly ManifestExpert[],
  path: string,
  known: readonly PackDamage[],
  tools: ByteTools,
  progress: (bytes: number) => void,
): Promise<PackDamage[]> {
  if (experts.length === 0) return [];
  const damages: PackDamage[] = [];
  const handle = await openFile(path).catch((thrown: unknown) => {
    throw readFailure(thrown, path, PACK_FILE_ERRORS);
  });
  try {
    for (const expert of experts) {
      for (const part of EXPERT_MATRICES) {
        const place = matrixLabel(expert, part);
        const isKnown = known.some((damage) => damage.place?.startsWith(place) === true);
        const damage = isKnown ? null : await valueDamage(expert[part], handle, path, tools);
        if (damage !== null) damages.push({ file: expert.file, place, ...damage });
        progress(matrixBytes(expert[part]));
      }
    }
  } finally {
    await handle.close();
  }
  return damages;
}

async function valueDamage(
  matrix: ManifestExpertTensor,
  handle: FileHandle,
  path: string,
  tools: ByteTools,
): Promise<Pick<PackDamage, 'expected' | 'found'> | null> {
  const expected = `values of ${checksum(matrix.source_crc32c)}`;
  const read = async (offsetBytes: number, sizeBytes: number): Promise<Uint8Array> =>
    readExactly(handle, path, offsetBytes, sizeBytes);
  try {
    let crc = 0;
    for await (const values of matrixValues(matrix, read, tools)) crc = tools.crc32c(values, crc);
    return crc === matrix.source_crc32c ? null : { expected, found: `values of ${checksum(crc)}` };
  } catch (thrown) {
    const failure = readFailure(thrown, path, PACK_FILE_ERRORS);
    if (failure.code === 'PACK_CORRUPT') return { expected, found: failure.message };
    if (failure.code === 'MODEL_CORRUPT') return { expected, found: 'a file that ends before them' };
    throw failure;
  }
}

function expertBytes(expert: ManifestExpert): number {
  return EXPERT_MATRICES.reduce((sum, part) => sum + matrixBytes(expert[part]), 0);
}

function matrixBytes(matrix: ManifestExpertTensor): number {
  return matrix.chunks.reduce((sum, chunk) => sum + chunk.stored_bytes, 0);
}

export function checksum(crc: number): string {
  return `crc32c ${crc.toString(16).padStart(8, '0')}`;
}

/** @throws PACK_CORRUPT naming the damaged places, if there are any */
export function requireUndamaged(pack: Pack, damages: readonly PackDamage[]): void {
  if (damages.length > 0) throw damageError(pack.directory, damages);
}

/** A PACK_CORRUPT error that names the damaged places. */
export function damageError(
  directory: string,
  damages: readonly PackDamage[],
  remedy = 'copy these files again, or remove the pack and pack again',
): OdmoeError {
  const lines = damages
    .slice(0, DAMAGES_NAMED)
    .map(
      ({ file, place, expected, found }) =>
        `  ${file}${place === null ? '' : `: ${place}`}: ${found}, expected ${expected}`,
    );
  const more = damages.length - DAMAGES_NAMED;
  if (more > 0) lines.push(`  and ${more} more`);
  return new OdmoeError('PACK_CORRUPT', `${directory}: ${damages.length} damaged:\n${lines.join('\n')}\n${remedy}`);
}

/** Checks a file's bytes, which must come in order. */
class FileVerifier {
  private readonly hash = createHash('sha256');
  private readonly damages: PackDamage[] = [];
  private offsetBytes = 0;
  private current = 0;
  private crc = 0;

  constructor(
    private readonly file: ManifestFile,
    private readonly extents: readonly FileExtent[],
    private readonly tools: Pick<ByteTools, 'crc32c'>,
  ) {}

  push(bytes: Uint8Array): void {
    this.hash.update(bytes);
    const end = this.offsetBytes + bytes.length;
    for (let extent = this.extents[this.current]; extent !== undefined; extent = this.extents[this.current]) {
      const extentEnd = extent.offsetBytes + extent.storedBytes;
      if (extent.offsetBytes >= end) break;
      const from = Math.max(0, extent.offsetBytes - this.offsetBytes);
      const to = Math.min(bytes.length, extentEnd - this.offsetBytes);
      this.crc = this.tools.crc32c(bytes.subarray(from, to), this.crc);
      if (extentEnd > end) break;
      this.closeExtent(extent);
    }
    this.offsetBytes = end;
  }

  finish(): PackDamage[] {
    const { name, size_bytes: size, sha256 } = this.file;
    if (this.offsetBytes !== size) {
      this.damages.push({ file: name, place: null, expected: `${size} bytes`, found: `${this.offsetBytes} bytes` });
    }
    const digest = this.hash.digest('hex');
    if (digest !== sha256) {
      this.damages.push({ file: name, place: null, expected: `sha256 ${sha256}`, found: `sha256 ${digest}` });
    }
    return this.damages;
  }

  private closeExtent(extent: FileExtent): void {
    if (this.crc !== extent.crc32c) {
      const [expected, found] = [checksum(extent.crc32c), checksum(this.crc)];
      this.damages.push({ file: extent.file, place: extent.label, expected, found });
    }
    this.crc = 0;
    this.current += 1;
  }
}

async function* bytesOfFile(path: string): AsyncGenerator<Uint8Array> {
  const buffer = new Uint8Array(READ_BYTES);
  let handle: FileHandle | null = null;
  try {
    handle = await openFile(path);
    for (;;) {
      const { bytesRead } = await handle.read(buffer, 0, buffer.length, null);
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
    }
  } catch (thrown) {
    throw readFailure(thrown, path, PACK_FILE_ERRORS);
  } finally {
    await handle?.close();
  }
}
