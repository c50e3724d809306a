import { createHash } from 'node:crypto';
import { realpath, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { expertLimits, type ModelShape } from '../../shared/model/model-shape.js';
import {
  fileExists,
  parseJson,
  readBoundedFile,
  readFailure,
  refuseWrongDownloadAt,
  type FileErrors,
} from '../../shared/base/files/read-file.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import {
  type ChunkLocation,
  type DraftHeadSource,
  type ExpertSource,
  type ModelSource,
  sharedTensor,
  type TensorSource,
} from '../../shared/model/tensor-source.js';
import type { DenseRole } from '../../shared/model/dense-roles.js';
import { manifestProblems } from './manifest-check.js';
import {
  isSlicesOnly,
  type Manifest,
  type ManifestDenseTensor,
  type ManifestDraftHead,
  type ManifestExpert,
  type ManifestExpertTensor,
  type ManifestFile,
  manifestHeadSchema,
  manifestSchema,
  type ManifestExtent,
  tensorName,
} from './manifest.js';
import {
  DENSE_FILE,
  DRAFT_DENSE_FILE,
  FETCH_JOURNAL_FILE,
  JOURNAL_FILE,
  MANIFEST_FILE,
  PACK_FORMAT,
  PACK_FORMAT_VERSION,
  expertBiasBytes,
} from './pack-layout.js';
import { closeSync, openSync, readSync } from 'node:fs';
import { crc32c } from '../../native/index.js';

/** Most bytes of a manifest. */
export const MANIFEST_LIMIT_BYTES = 512 * 1024 * 1024;
/** Most contradictions in one message. */
const PROBLEMS_NAMED = 20;

const MANIFEST_ERRORS: FileErrors = {
  missing: 'MODEL_NOT_FOUND',
  invalid: 'PACK_CORRUPT',
  remedy: 'copy the pack again, or make it again with "odmoe pack"',
};

/** An opened pack. Its weights have not been read, but every file has the size that the manifest gives. */
export interface Pack extends ModelSource {
  readonly kind: 'pack';
  readonly packDigest: string;
  readonly manifest: Manifest;
}

/** True if the directory holds a pack, whole or not. */
export async function isPackDirectory(directory: string): Promise<boolean> {
  for (const name of [MANIFEST_FILE, JOURNAL_FILE, FETCH_JOURNAL_FILE]) {
    if (await fileExists(join(directory, name))) return true;
  }
  return false;
}

/**
 * Opens a pack: checks its manifest for contradictions and against the sizes of the files.
 * @throws MODEL_NOT_FOUND, PACK_INCOMPLETE (slices only, too), PACK_CORRUPT, MODEL_UNSUPPORTED (another format version), STORAGE_FAILED
 */
export async function openPack(directory: string): Promise<Pack> {
  return requireLossless(await openAnyPack(directory));
}

/** As openPack, also for a pack that has its experts in slices only. */
export async function openAnyPack(directory: string): Promise<Pack> {
  const absolute = await realpath(directory).catch((thrown: unknown) => {
    throw readFailure(thrown, directory, { ...MANIFEST_ERRORS, remedy: 'give the directory of a pack' });
  });
  const path = join(absolute, MANIFEST_FILE);
  if (!(await fileExists(path))) await requireNotBegun(absolute);
  const bytes = await readBoundedFile(path, MANIFEST_LIMIT_BYTES, MANIFEST_ERRORS);
  const pack = anyPackOfManifest(absolute, bytes, path);
  await checkFileSizes(absolute, pack.manifest.files, MANIFEST_ERRORS.remedy);
  return pack;
}

/** The pack that the bytes of a manifest describe; its files are not examined. `path`: source of the bytes. @throws as parseManifest */
export function packOfManifest(directory: string, bytes: Uint8Array, path: string): Pack {
  return requireLossless(anyPackOfManifest(directory, bytes, path));
}

function requireLossless(pack: Pack): Pack {
  if (!isSlicesOnly(pack.manifest)) return pack;
  throw new OdmoeError(
    'PACK_INCOMPLETE',
    `${pack.directory}: holds the experts in slices only, and exact answers and a shadow of another form need their lossless parts: ask for the ` +
      "slices (--quality 'sliced(8,4)', for a shadow --precision 'sliced(8,4)', with the bits that `odmoe inspect` shows), or pack the " +
      'checkpoint again without --only',
  );
}

/** As packOfManifest, also for a pack that has its experts in slices only. */
export function anyPackOfManifest(directory: string, bytes: Uint8Array, path: string): Pack {
  const manifest = parseManifest(parseJson(bytes, path, MANIFEST_ERRORS), path);
  return packOf(directory, manifest, createHash('sha256').update(bytes).digest('hex'));
}

async function requireNotBegun(directory: string): Promise<void> {
  if (await fileExists(join(directory, JOURNAL_FILE))) {
    throw new OdmoeError(
      'PACK_INCOMPLETE',
      `${directory}: the pack is not finished; run odmoe pack again with the same directories to finish it`,
    );
  }
  if (await fileExists(join(directory, FETCH_JOURNAL_FILE))) {
    throw new OdmoeError(
      'PACK_INCOMPLETE',
      `${directory}: holds only what a worker has fetched of the pack; "odmoe worker --model ${directory}" goes on with it, ` +
        'for anything else copy the whole pack',
    );
  }
}

/** Parses manifest.json and checks it for contradictions. @throws PACK_CORRUPT, MODEL_UNSUPPORTED */
export function parseManifest(value: unknown, path: string): Manifest {
  const corrupt = (problem: string): OdmoeError =>
    new OdmoeError('PACK_CORRUPT', `${path}: ${problem}; ${MANIFEST_ERRORS.remedy}`);
  const head = manifestHeadSchema.safeParse(value);
  if (!head.success || head.data.format !== PACK_FORMAT)
    throw corrupt(`not a manifest of a pack ("format" is not "${PACK_FORMAT}")`);
  if (head.data.format_version !== PACK_FORMAT_VERSION) {
    throw new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${path}: pack format version ${JSON.stringify(head.data.format_version)}, this odmoe reads version ` +
        `${PACK_FORMAT_VERSION}; pack the checkpoint again with this odmoe, or use the odmoe that packed it`,
    );
  }
  const parsed = manifestSchema.safeParse(value);
  if (!parsed.success)
    throw corrupt(
      firstProblems(parsed.error.issues.map((issue) => `${z.core.toDotPath(issue.path)}: ${issue.message}`)),
    );
  const problems = manifestProblems(parsed.data);
  if (problems.length > 0) throw corrupt(firstProblems(problems));
  return parsed.data;
}

export function firstProblems(problems: string[], most = PROBLEMS_NAMED): string {
  const named = problems.slice(0, most).join('; ');
  const more = problems.length - most;
  return more > 0 ? `${named}; and ${more} more` : named;
}

/** @throws PACK_CORRUPT if a file is missing or has another size, STORAGE_FAILED */
export async function checkFileSizes(directory: string, files: readonly ManifestFile[], remedy: string): Promise<void> {
  const problems: string[] = [];
  for (const { name, size_bytes: expected } of files) {
    const path = join(directory, name);
    const found = await stat(path).catch((thrown: unknown) => {
      if (systemErrorCode(thrown) === 'ENOENT') return null;
      throw readFailure(thrown, path, MANIFEST_ERRORS);
    });
    if (found === null) problems.push(`${name} is missing`);
    else if (found.size !== expected) {
      await refuseWrongDownloadAt(path, MANIFEST_ERRORS.invalid);
      problems.push(`${name} has ${found.size} bytes, expected ${expected}`);
    }
  }
  if (problems.length > 0) {
    throw new OdmoeError('PACK_CORRUPT', `${directory}: ${firstProblems(problems)}; ${remedy}`);
  }
}

function packOf(directory: string, manifest: Manifest, digest: string): Pack {
  const { model } = manifest;
  const { shape } = model;
  const pack = {
    kind: 'pack' as const,
    directory,
    name: model.name,
    shape,
    shippedFormat: model.shipped_format,
    eosTokenIds: model.eos_token_ids,
    packDigest: digest,
    tiedEmbeddings: model.tied_embeddings,
    manifest,
    ...tensorsOf(directory, manifest, shape, DENSE_FILE),
  };
  return { ...pack, draftHead: manifest.draft_head === undefined ? null : draftHeadOf(pack, manifest.draft_head) };
}

/** The tensors of a model, or of a head that drafts; `denseFile`: the file of those that are not of experts. */
function tensorsOf(
  directory: string,
  contents: Pick<Manifest, 'dense' | 'experts'>,
  shape: ModelShape,
  denseFile: string,
): Pick<ModelSource, 'dense' | 'denseName' | 'expert'> {
  const densePath = join(directory, denseFile);
  const dense = new Map(contents.dense.map((tensor) => [`${tensor.role} ${tensor.layer}`, tensor]));
  const limits = expertLimits(shape);
  return {
    dense: (role, layer) => {
      const tensor = dense.get(`${role} ${layer}`);
      if (tensor === undefined) throw lacking(directory, `${role} of layer ${layer}`);
      return denseSource(tensor, densePath);
    },
    denseName: (role, layer) => tensorName({ role, layer }),
    expert: (layer, expert) => {
      const entry = expert < shape.experts ? contents.experts[layer * shape.experts + expert] : undefined;
      if (entry === undefined) throw lacking(directory, `expert ${expert} of expert layer ${layer}`);
      return expertSource(entry, join(directory, entry.file), shape, limits[layer]);
    },
  };
}

function draftHeadOf(pack: Omit<Pack, 'draftHead'>, head: ManifestDraftHead): DraftHeadSource {
  const { directory, name, eosTokenIds, packDigest } = pack;
  const { shape } = head;
  const own = tensorsOf(directory, head, shape, DRAFT_DENSE_FILE);
  const sharedRoles: ReadonlySet<DenseRole> = new Set(head.shared);
  return {
    kind: 'pack',
    directory,
    name,
    shape,
    shippedFormat: head.shipped_format,
    eosTokenIds,
    packDigest,
    tiedEmbeddings: false,
    sharedRoles,
    dense: (role, layer) => (sharedRoles.has(role) ? sharedTensor(pack, role) : own.dense(role, layer)),
    expert: own.expert,
  };
}

function lacking(directory: string, what: string): OdmoeError {
  return new OdmoeError('INTERNAL', `${directory}: asked for ${what}, which the model lacks`);
}

function expertSource(
  entry: ManifestExpert,
  path: string,
  shape: ModelShape,
  gluLimit: number | undefined,
): ExpertSource {
  const { biases } = entry;
  let read: Float32Array | null = null;
  return {
    gate: expertTensorSource(entry.gate, path),
    up: expertTensorSource(entry.up, path),
    down: expertTensorSource(entry.down, path),
    gluLimit,
    // Read at the first use, because the expert may not have been fetched yet.
    get biases() {
      if (biases !== null) read ??= readPackBiases(path, biases, shape);
      return read;
    },
  };
}

function denseSource({ rows, columns, split, planes }: ManifestDenseTensor, path: string): TensorSource {
  const chunks = planes.map((extent, plane) => rawChunk(plane, path, extent));
  return { rows, columns, split, chunks, view: null };
}

export function rawChunk(plane: number, path: string, extent: ManifestExtent): ChunkLocation {
  const { offset_bytes: offsetBytes, stored_bytes: storedBytes, crc32c } = extent;
  return { plane, path, offsetBytes, storedBytes, plainBytes: storedBytes, codec: 'raw', crc32c };
}

function expertTensorSource({ rows, columns, split, chunks }: ManifestExpertTensor, path: string): TensorSource {
  return {
    rows,
    columns,
    split,
    view: null,
    chunks: chunks.map((chunk) => ({
      plane: chunk.plane,
      path,
      offsetBytes: chunk.offset_bytes,
      storedBytes: chunk.stored_bytes,
      plainBytes: chunk.plain_bytes,
      codec: chunk.codec,
      crc32c: chunk.crc32c,
    })),
  };
}

const BIAS_FILE_ERRORS: FileErrors = {
  missing: 'PACK_CORRUPT',
  invalid: 'PACK_CORRUPT',
  remedy: 'copy the pack again',
};

/**
 * The biases of one expert, some ten KB: intermediateSize for gate, as many for up, hiddenSize for down. The read is synchronous, because the
 * code that gives an expert's place to slots does so in one step.
 * @throws PACK_CORRUPT (cut file, wrong checksum), STORAGE_FAILED
 */
export function readPackBiases(path: string, extent: ManifestExtent, shape: ModelShape): Float32Array {
  const bytes = new Uint8Array(expertBiasBytes(shape));
  try {
    const file = openSync(path, 'r');
    try {
      for (let done = 0; done < bytes.length;) {
        const read = readSync(file, bytes, done, bytes.length - done, extent.offset_bytes + done);
        if (read === 0) throw damaged(path, extent, 'the file ends before them');
        done += read;
      }
    } finally {
      closeSync(file);
    }
  } catch (thrown) {
    throw readFailure(thrown, path, BIAS_FILE_ERRORS);
  }
  if (crc32c(bytes, 0) !== extent.crc32c) throw damaged(path, extent, 'their checksum is another');
  return new Float32Array(bytes.buffer);
}

function damaged(path: string, { offset_bytes: offset }: ManifestExtent, problem: string): OdmoeError {
  return new OdmoeError(
    'PACK_CORRUPT',
    `${path}: biases of an expert at byte ${offset}: ${problem}; ${BIAS_FILE_ERRORS.remedy}`,
  );
}
