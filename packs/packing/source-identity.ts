import { createHash } from 'node:crypto';
import { basename, join } from 'node:path';
import type { ExpertId } from '../../shared/model/expert-id.js';
import type { Checkpoint } from '../checkpoint/checkpoint.js';
import { fileExists, readFailure, readWholeFile } from '../../shared/base/files/read-file.js';
import { refuseWrongDownload } from '../../shared/base/files/wrong-download.js';
import { CHECKPOINT_FILE_ERRORS } from '../checkpoint/safetensors-file.js';
import { COPIED_FILES } from '../format/pack-layout.js';
import { type Manifest, tensorName } from '../format/manifest.js';
import type { DensePlace } from '../../shared/model/dense-roles.js';
import { EXPERT_MATRICES, type ExpertMatrix, type ExactFormat, type Split } from '../../shared/model/tensor-source.js';
import { exactFormatOf } from '../../shared/model/weight-dtype.js';

/**
 * Distinguishes checkpoints on this machine without reading their weights: SHA-256 over the name, size, time of change and header of each weight
 * file and the content of the small ones. For caches and journals; never part of a pack.
 * @throws MODEL_CORRUPT if a wrong download stands in place of a small file; STORAGE_FAILED
 */
export async function sourceIdentity(checkpoint: Checkpoint): Promise<string> {
  const hash = createHash('sha256');
  for (const name of COPIED_FILES) {
    const content = await smallFile(checkpoint, name);
    if (content !== null) hash.update(`${name} ${content.length}\n`).update(content);
  }
  for (const file of [...checkpoint.files].sort((a, b) => (a.path < b.path ? -1 : 1))) {
    hash.update(`${basename(file.path)} ${file.sizeBytes} ${file.modifiedMs} ${file.headerDigest}\n`);
  }
  return hash.digest('hex');
}

/**
 * Content of one of the small files of a checkpoint, made or in its directory; null: it has none of this name.
 * @throws MODEL_CORRUPT if a wrong download stands in its place; STORAGE_FAILED
 */
export async function smallFile(
  { directory, madeFiles }: Pick<Checkpoint, 'directory' | 'madeFiles'>,
  name: string,
): Promise<Uint8Array | null> {
  if (madeFiles !== null) return madeFiles.get(name) ?? null;
  const path = join(directory, name);
  if (!(await fileExists(path))) return null;
  const content = await readWholeFile(path).catch((thrown: unknown) => {
    throw readFailure(thrown, path, CHECKPOINT_FILE_ERRORS);
  });
  refuseWrongDownload(content, path, CHECKPOINT_FILE_ERRORS.invalid);
  return content;
}

export function sha256Hex(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** A tensor in the fingerprint of a pack's source. */
export interface FingerprintedTensor {
  name: string;
  format: ExactFormat;
  /** CRC-32Cs of the values as they were packed: one a plane for dense tensors, one for an expert's matrix, one for its biases. */
  crc32c: readonly number[];
}

export function fingerprintedDense(place: DensePlace, split: Split, crc32c: readonly number[]): FingerprintedTensor {
  return { name: tensorName(place), format: exactFormatOf(split), crc32c };
}

export function fingerprintedMatrix(
  { layer, expert }: ExpertId,
  part: ExpertMatrix,
  split: Split,
  crc32c: number,
): FingerprintedTensor {
  return { name: tensorName({ layer, expert, part }), format: exactFormatOf(split), crc32c: [crc32c] };
}

/** The fingerprint entry of an expert's three biases, which are packed as FP32. */
export function fingerprintedBiases({ layer, expert }: ExpertId, crc32c: number): FingerprintedTensor {
  return { name: tensorName({ layer, expert, part: 'biases' }), format: 'fp32', crc32c: [crc32c] };
}

/** A tensor of a head that drafts: another name, so that it is none of its model's. */
export function ofDraftHead(tensor: FingerprintedTensor): FingerprintedTensor {
  return { ...tensor, name: `draft.${tensor.name}` };
}

/** The tensors of a pack. */
export function packedTensors({
  dense,
  experts,
  draft_head: head,
}: Pick<Manifest, 'dense' | 'experts' | 'draft_head'>): FingerprintedTensor[] {
  return [
    ...(head === undefined ? [] : packedTensors(head).map(ofDraftHead)),
    ...dense.map((tensor) =>
      fingerprintedDense(
        tensor,
        tensor.split,
        tensor.planes.map(({ crc32c }) => crc32c),
      ),
    ),
    ...experts.flatMap((expert) => [
      ...EXPERT_MATRICES.map((part) =>
        fingerprintedMatrix(expert, part, expert[part].split, expert[part].source_crc32c),
      ),
      ...(expert.biases === null ? [] : [fingerprintedBiases(expert, expert.biases.crc32c)]),
    ]),
  ];
}

/**
 * SHA-256 over the names, formats and checksums of all tensors. It is the same for one model, however its files are cut. The manifest holds the
 * shapes separately.
 */
export function sourceFingerprint(tensors: readonly FingerprintedTensor[]): string {
  const lines = tensors.map(({ name, format, crc32c }) => `${name} ${format} ${crc32c.join(' ')}\n`);
  return createHash('sha256').update(lines.sort().join('')).digest('hex');
}
