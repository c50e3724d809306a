import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { z } from 'zod';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { type FileErrors, fileExists, parseJson, readBoundedFile } from '../../shared/base/files/read-file.js';
import { expertLimits } from '../../shared/model/model-shape.js';
import type { ExpertSource, SlicedSplit, TensorSource } from '../../shared/model/tensor-source.js';
import {
  checkFileSizes,
  firstProblems,
  MANIFEST_LIMIT_BYTES,
  openAnyPack,
  type Pack,
  rawChunk,
  readPackBiases,
} from '../format/open-pack.js';
import {
  sliceFileName,
  type SliceSet,
  SLICES,
  SLICES_FILE,
  slicesOfSet,
  SLICING_JOURNAL_FILE,
} from '../format/pack-layout.js';
import { slicesProblems } from './slices-check.js';
import {
  filesOfSlice,
  type SlicedExpert,
  type SlicedMatrix,
  SLICES_FORMAT,
  SLICES_FORMAT_VERSION,
  type SlicesManifest,
  slicesManifestSchema,
} from './slices-manifest.js';

const SLICES_ERRORS: FileErrors = {
  missing: 'PACK_INCOMPLETE',
  invalid: 'PACK_CORRUPT',
  remedy: 'make the slices with "odmoe pack --slices"',
};

/** One wrong size is found again in every expert, so a few problems say it. */
const PROBLEMS_NAMED = 3;

/** The opened slices of a pack. They have not been read, but every file that is to be there has the size that slices.json gives. */
export interface Slices {
  readonly directory: string;
  readonly split: SlicedSplit;
  /** The slices that are opened. An expert has the places of both; without the lower ones, only plane 0 may be read. */
  readonly opened: SliceSet;
  /** SHA-256 of slices.json, hexadecimal. */
  readonly digest: string;
  readonly manifest: SlicesManifest;
  /** Plane 0 is the upper slice, plane 1 the lower one. `layer` counts expert layers. */
  expert(layer: number, expert: number): ExpertSource;
}

/**
 * Opens the slices in the directory of a pack; 'upper': the upper ones, whether or not the lower ones are there.
 * @throws PACK_INCOMPLETE if it has none, unfinished ones, or the upper ones alone where both are asked for; else as openAnyPack
 */
export async function openSlices(directory: string, asked: SliceSet = 'both'): Promise<Slices> {
  return slicesOf(await openAnyPack(directory), asked);
}

/** As openSlices, for a pack that is open. */
export async function slicesOf(pack: Pack, asked: SliceSet = 'both'): Promise<Slices> {
  const slices = await readSlices(pack, asked);
  if (asked === 'both' && !(await hasLowerSlices(slices))) {
    throw new OdmoeError(
      'PACK_INCOMPLETE',
      `${slices.directory}: holds the upper slices alone, without the lower ones; ${SLICES_ERRORS.remedy}`,
    );
  }
  return withWholeFiles(slices);
}

/** The slices that a pack has, both or the upper ones alone; null: it has none. @throws as openSlices */
export async function heldSlices(pack: Pack): Promise<Slices | null> {
  if (!(await hasSlices(pack))) return null;
  return withWholeFiles(await describedSlices(pack));
}

/** What there is of a pack's slices, for people. */
export interface FoundSlices {
  /** As slices.json describes them; null: none, unfinished ones, or a slices.json that describes none. */
  readonly slices: Slices | null;
  /** slices.json is not there yet, but layers of slices may be. */
  readonly isUnfinished: boolean;
  /** Damage of slices.json, or files that are missing or of another size; null: none. */
  readonly damage: OdmoeError | null;
}

export const NO_SLICES: FoundSlices = { slices: null, isUnfinished: false, damage: null };

/** As heldSlices, but damaged slices are described as well. @throws STORAGE_FAILED, MODEL_UNSUPPORTED (another version) */
export async function findSlices(pack: Pack): Promise<FoundSlices> {
  if (!(await hasSlices(pack))) return { ...NO_SLICES, isUnfinished: await hasUnfinishedSlices(pack) };
  let slices: Slices | null = null;
  try {
    slices = await describedSlices(pack);
    return { ...NO_SLICES, slices: await withWholeFiles(slices) };
  } catch (thrown) {
    if (!(thrown instanceof OdmoeError) || thrown.code !== SLICES_ERRORS.invalid) throw thrown;
    return { ...NO_SLICES, slices, damage: thrown };
  }
}

/** The slices that slices.json describes, without the lower ones if no file of those is there. Sizes of files are not compared. */
async function describedSlices(pack: Pack): Promise<Slices> {
  const slices = await readSlices(pack);
  return (await hasLowerSlices(slices)) ? slices : { ...slices, opened: 'upper' };
}

/** @throws PACK_CORRUPT if a file of the slices that are opened is missing or has another size */
async function withWholeFiles(slices: Slices): Promise<Slices> {
  const files = slicesOfSet(slices.opened).flatMap((slice) => filesOfSlice(slices.manifest, slice));
  await checkFileSizes(slices.directory, files, SLICES_ERRORS.remedy);
  return slices;
}

/** False if no file of lower slices is there: they were not fetched. */
async function hasLowerSlices({ directory, manifest }: Slices): Promise<boolean> {
  for (const { name } of filesOfSlice(manifest, 'lower')) if (await fileExists(join(directory, name))) return true;
  return false;
}

/** True if the pack has slices, right ones or not. */
export async function hasSlices({ directory }: Pack): Promise<boolean> {
  return fileExists(join(directory, SLICES_FILE));
}

/** True if the making of slices has begun and was not ended. */
export async function hasUnfinishedSlices(pack: Pack): Promise<boolean> {
  return !(await hasSlices(pack)) && (await fileExists(join(pack.directory, SLICING_JOURNAL_FILE)));
}

/** True if slices.json is JSON, right or not. @throws STORAGE_FAILED, PACK_INCOMPLETE if there is none */
export async function isSlicesFileReadable({ directory }: Pack): Promise<boolean> {
  const path = join(directory, SLICES_FILE);
  try {
    parseJson(await readSlicesFile(path), path, SLICES_ERRORS);
    return true;
  } catch (thrown) {
    if (thrown instanceof OdmoeError && thrown.code === SLICES_ERRORS.invalid) return false;
    throw thrown;
  }
}

async function readSlicesFile(path: string): Promise<Buffer> {
  return readBoundedFile(path, MANIFEST_LIMIT_BYTES, SLICES_ERRORS);
}

/** Reads slices.json and compares it with the pack. The files that it names are not examined. @throws as openSlices */
export async function readSlices(pack: Pack, asked: SliceSet = 'both'): Promise<Slices> {
  const path = join(pack.directory, SLICES_FILE);
  return slicesOfManifest(pack, await readSlicesFile(path), path, asked);
}

/** The slices that the bytes of a slices.json describe; their files are not examined. `path`: source of the bytes. @throws as parseSlices */
export function slicesOfManifest(pack: Pack, bytes: Uint8Array, path: string, asked: SliceSet): Slices {
  const manifest = parseSlices(parseJson(bytes, path, SLICES_ERRORS), pack, path);
  const { experts } = pack.shape;
  const limits = expertLimits(pack.shape);
  return {
    directory: pack.directory,
    split: manifest.split,
    opened: asked,
    digest: createHash('sha256').update(bytes).digest('hex'),
    manifest,
    expert: (layer, expert) => {
      const entry = expert < experts ? manifest.experts[layer * experts + expert] : undefined;
      if (entry !== undefined) return expertSource(entry, manifest.split, pack, limits[layer]);
      throw new OdmoeError('INTERNAL', `${path}: asked for expert ${expert} of expert layer ${layer}, which it lacks`);
    },
  };
}

const headSchema = z.looseObject({ format: z.unknown(), format_version: z.unknown(), source_fingerprint: z.unknown() });

/** @throws PACK_CORRUPT, MODEL_UNSUPPORTED (another version) */
export function parseSlices(value: unknown, { manifest, directory }: Pack, path: string): SlicesManifest {
  const corrupt = (problem: string): OdmoeError =>
    new OdmoeError('PACK_CORRUPT', `${path}: ${problem}; remove it and ${SLICES_ERRORS.remedy}`);
  const head = headSchema.safeParse(value).data;
  if (head?.format !== SLICES_FORMAT) throw corrupt(`does not describe slices ("format" is not "${SLICES_FORMAT}")`);
  if (head.format_version !== SLICES_FORMAT_VERSION) {
    throw new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${path}: slices of format version ${JSON.stringify(head.format_version)}, this odmoe reads version ` +
        `${SLICES_FORMAT_VERSION}; remove it and ${SLICES_ERRORS.remedy}`,
    );
  }
  const parsed = slicesManifestSchema.safeParse(value);
  if (!parsed.success) {
    throw corrupt(
      firstProblems(
        parsed.error.issues.map((issue) => `${z.core.toDotPath(issue.path)}: ${issue.message}`),
        PROBLEMS_NAMED,
      ),
    );
  }
  if (parsed.data.source_fingerprint !== manifest.source.fingerprint) {
    throw corrupt(`describes slices of another model than the pack in ${directory}`);
  }
  const problems = slicesProblems(parsed.data, manifest);
  if (problems.length > 0) throw corrupt(firstProblems(problems, PROBLEMS_NAMED));
  return parsed.data;
}

function expertSource(
  entry: SlicedExpert,
  split: SlicedSplit,
  { directory, shape }: Pack,
  gluLimit: number | undefined,
): ExpertSource {
  const paths = SLICES.map((slice) => join(directory, sliceFileName(entry.layer, slice)));
  const { biases } = entry;
  let read: Float32Array | null = null;
  return {
    gate: matrixSource(entry.gate, split, paths),
    up: matrixSource(entry.up, split, paths),
    down: matrixSource(entry.down, split, paths),
    gluLimit,
    get biases() {
      if (biases !== null) read ??= readPackBiases(paths[0] ?? '', biases, shape);
      return read;
    },
  };
}

function matrixSource(matrix: SlicedMatrix, split: SlicedSplit, paths: readonly string[]): TensorSource {
  const { rows, columns } = matrix;
  const chunks = paths.map((path, plane) => rawChunk(plane, path, matrix[SLICES[plane] ?? 'upper']));
  return { rows, columns, split, chunks, view: null };
}
