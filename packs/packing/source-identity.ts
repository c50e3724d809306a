import { createHash } from 'node:crypto';
import { basename, join } from 'node:path';
import type { Checkpoint } from '../../shared/checkpoint/checkpoint.js';
import { fileExists, readFailure, readWholeFile } from '../../shared/model/read-file.js';
import { CHECKPOINT_FILE_ERRORS } from '../../shared/model/safetensors-file.js';
import { COPIED_FILES } from '../format/pack-layout.js';
import type { ManifestDenseTensor, ManifestExpert } from '../format/manifest.js';
import { EXPERT_PARTS } from '../../shared/model/model-family.js';

/**
 * Tells checkpoints on this machine apart without reading their weights: SHA-256 over the name, size, time of change and header
 * of each weight file and the content of the small ones. For caches and journals; never part of a pack.
 */
export async function sourceIdentity(checkpoint: Checkpoint): Promise<string> {
  const hash = createHash('sha256');
  for (const name of COPIED_FILES) {
    const path = join(checkpoint.directory, name);
    if (!(await fileExists(path))) continue;
    const content = await readWholeFile(path).catch((thrown: unknown) => {
      throw readFailure(thrown, path, CHECKPOINT_FILE_ERRORS);
    });
    hash.update(`${name} ${content.length}\n`).update(content);
  }
  for (const file of [...checkpoint.files].sort((a, b) => (a.path < b.path ? -1 : 1))) {
    hash.update(`${basename(file.path)} ${file.sizeBytes} ${file.modifiedMs} ${file.headerDigest}\n`);
  }
  return hash.digest('hex');
}

/** What the fingerprint takes of a tensor. */
export interface FingerprintedTensor {
  name: string;
  dtype: string;
  /** CRC-32C of the row-major values as shipped. */
  crc32c: number;
}

/** The tensors of a pack for the fingerprint of what it was made from. */
export function packedTensors(
  dense: readonly ManifestDenseTensor[],
  experts: readonly ManifestExpert[],
): FingerprintedTensor[] {
  const matrices = experts.flatMap((expert) => EXPERT_PARTS.map((part) => expert[part]));
  return [
    ...dense.map(({ name, dtype, crc32c }) => ({ name, dtype, crc32c })),
    ...matrices.map(({ name, dtype, source_crc32c }) => ({ name, dtype, crc32c: source_crc32c })),
  ];
}

/**
 * SHA-256 over the names, types and checksums of all tensors: the same for one model however its files are cut.
 * Shapes are in the manifest beside it.
 */
export function sourceFingerprint(tensors: readonly FingerprintedTensor[]): string {
  const lines = tensors.map(({ name, dtype, crc32c }) => `${name} ${dtype} ${crc32c}\n`);
  return createHash('sha256').update(lines.sort().join('')).digest('hex');
}
