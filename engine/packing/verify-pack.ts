import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { OdmoeError } from '../../shared/errors/index.js';
import { openFile, readFailure } from '../../shared/model/read-file.js';
import type { ManifestFile } from '../../shared/pack/manifest.js';
import { packExtents, type PackExtent } from '../../shared/pack/manifest-check.js';
import type { Pack } from '../../shared/pack/open-pack.js';
import { PIECE_BYTES } from './tensor-reader.js';

/** Damages named in the message of one error; all are in the report. */
const DAMAGES_NAMED = 20;

/** Something in a pack that is not as the manifest says. */
export interface PackDamage {
  file: string;
  /** The chunk or tensor; null: the file as a whole. */
  place: string | null;
  expected: string;
  found: string;
}

/**
 * Reads a whole pack once and compares every file's size and SHA-256 and every chunk's CRC-32C.
 * @returns every damage found, in the order of files and offsets
 * @throws STORAGE_FAILED when a file cannot be read
 */
export async function verifyPack(
  pack: Pack,
  crc32c: (bytes: Uint8Array, seed: number) => number,
  onProgress?: (doneBytes: number, totalBytes: number) => void,
): Promise<PackDamage[]> {
  const { files } = pack.manifest;
  const totalBytes = files.reduce((sum, file) => sum + file.size_bytes, 0);
  const extents = new Map<string, PackExtent[]>(files.map((file) => [file.name, []]));
  for (const extent of packExtents(pack.manifest)) extents.get(extent.file)?.push(extent);
  const damages: PackDamage[] = [];
  let doneBytes = 0;
  for (const file of files) {
    const verifier = new FileVerifier(file, extents.get(file.name) ?? [], crc32c);
    for await (const piece of filePieces(join(pack.directory, file.name))) {
      verifier.push(piece);
      doneBytes += piece.length;
      onProgress?.(doneBytes, totalBytes);
    }
    damages.push(...verifier.finish());
  }
  return damages;
}

/** @throws PACK_CORRUPT naming what is damaged, unless nothing is */
export function requireUndamaged(pack: Pack, damages: readonly PackDamage[]): void {
  if (damages.length === 0) return;
  const lines = damages
    .slice(0, DAMAGES_NAMED)
    .map(
      ({ file, place, expected, found }) =>
        `  ${file}${place === null ? '' : `: ${place}`}: ${found}, expected ${expected}`,
    );
  const more = damages.length - DAMAGES_NAMED;
  if (more > 0) lines.push(`  and ${more} more`);
  throw new OdmoeError(
    'PACK_CORRUPT',
    `${pack.directory}: ${damages.length} damaged:\n${lines.join('\n')}\ncopy these files again, or remove the pack and pack again`,
  );
}

/** Takes a file's bytes in order. */
class FileVerifier {
  private readonly hash = createHash('sha256');
  private readonly damages: PackDamage[] = [];
  private offsetBytes = 0;
  private current = 0;
  private crc = 0;

  constructor(
    private readonly file: ManifestFile,
    private readonly extents: readonly PackExtent[],
    private readonly crc32c: (bytes: Uint8Array, seed: number) => number,
  ) {}

  push(piece: Uint8Array): void {
    this.hash.update(piece);
    const end = this.offsetBytes + piece.length;
    for (let extent = this.extents[this.current]; extent !== undefined; extent = this.extents[this.current]) {
      const extentEnd = extent.offsetBytes + extent.storedBytes;
      if (extent.offsetBytes >= end) break;
      const from = Math.max(0, extent.offsetBytes - this.offsetBytes);
      const to = Math.min(piece.length, extentEnd - this.offsetBytes);
      this.crc = this.crc32c(piece.subarray(from, to), this.crc);
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

  private closeExtent(extent: PackExtent): void {
    if (this.crc !== extent.crc32c) {
      const hex = (crc: number): string => `crc32c ${crc.toString(16).padStart(8, '0')}`;
      this.damages.push({ file: extent.file, place: extent.label, expected: hex(extent.crc32c), found: hex(this.crc) });
    }
    this.crc = 0;
    this.current += 1;
  }
}

async function* filePieces(path: string): AsyncGenerator<Uint8Array> {
  const piece = new Uint8Array(PIECE_BYTES);
  let handle: FileHandle | null = null;
  try {
    handle = await openFile(path);
    for (;;) {
      const { bytesRead } = await handle.read(piece, 0, piece.length, null);
      if (bytesRead === 0) return;
      yield piece.subarray(0, bytesRead);
    }
  } catch (thrown) {
    throw readFailure(thrown, path, {
      missing: 'PACK_CORRUPT',
      invalid: 'PACK_CORRUPT',
      remedy: 'copy the pack again',
    });
  } finally {
    await handle?.close();
  }
}
