import { createHash } from 'node:crypto';
import { rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { odmoeVersion } from '../../shared/base/files/odmoe-version.js';
import { syncDirectory } from '../../shared/base/files/sync-directory.js';
import { requireFreeBytes, writeFailure } from '../../shared/base/files/storage-error.js';
import type { MeasuredTheta } from '../../shared/decisions/slices/plan-readings.js';
import type { ModelSource, SlicedSplit } from '../../shared/model/tensor-source.js';
import { isSlicesOnly } from '../format/manifest.js';
import { openAnyPack, type Pack } from '../format/open-pack.js';
import {
  FETCH_SLICES_JOURNAL_FILE,
  PARTIAL_SUFFIX,
  sliceFileName,
  SLICES,
  SLICES_FILE,
  SLICING_JOURNAL_FILE,
} from '../format/pack-layout.js';
import { layerExpertBytes } from '../packing/model-bytes.js';
import { acquirePackingLock } from '../packing/output-directory.js';
import type { ByteTools } from '../packing/packing-context.js';
import { SourceReader } from '../packing/source-reader.js';
import { damageError } from '../packing/verify-pack.js';
import { hasSlices, isSlicesFileReadable, parseSlices, readSlices, type Slices } from './open-slices.js';
import { sliceLayout } from './slice-layout.js';
import { type SlicingContext, writeLayerSlices } from './slice-layer.js';
import type { SlicingTools } from './slice-matrix.js';
import { pairOfSplit } from './slice-pair.js';
import {
  type SlicedLayer,
  SLICES_FORMAT,
  SLICES_FORMAT_VERSION,
  serializeSlices,
  sliceFileBytes,
  type SlicesManifest,
} from './slices-manifest.js';
import { SlicingJournal } from './slicing-journal.js';
import { verifySliceFiles } from './verify-slices.js';

export interface SliceOptions {
  /** A pack of slices only is made from this checkpoint. Any other pack is sliced from its own weights. */
  checkpoint?: ModelSource;
  onProgress?: (doneBytes: number, totalBytes: number) => void;
  signal?: AbortSignal;
}

/** The result of slicing. */
export interface SliceOutcome {
  directory: string;
  /** Bits of a whole code and of its upper slice: "8,4". */
  pair: string;
  digest: string;
  upperBytes: number;
  lowerBytes: number;
  /** Thresholds of critical executions; null: not measured. */
  theta: readonly MeasuredTheta[] | null;
  /** Number of layers that an earlier, interrupted run had finished. */
  resumedLayers: number;
  /** Damaged files that were made again. */
  mendedFiles: string[];
  /** True if the directory already held these slices. */
  alreadyWhole: boolean;
}

/**
 * Adds slices of all experts to a pack: beside the experts' lossless parts, from which they are made, or in place of them. No byte of the pack
 * itself changes. An interrupted run is continued by the next one; until the end the pack has no slices. Where it has them already, damaged files are made again;
 * where slices.json is not JSON, all slices are made again.
 * @throws USAGE if it has slices of another pair; STORAGE_FULL, CANCELLED, LockHeldError; MODEL_UNSUPPORTED for a weight that cannot be sliced;
 * else as openPack
 */
export async function addSlices(
  directory: string,
  split: SlicedSplit,
  { checkpoint, onProgress, signal }: SliceOptions,
  tools: ByteTools & SlicingTools,
): Promise<SliceOutcome> {
  const pack = await openAnyPack(directory);
  const source = isSlicesOnly(pack.manifest) ? requireCheckpoint(pack, checkpoint) : pack;
  const lock = await acquirePackingLock(pack.directory);
  const totalBytes = layersOf(pack).reduce((sum, layer) => sum + layerExpertBytes(source, layer), 0);
  let doneBytes = 0;
  const context: SlicingContext = {
    directory: pack.directory,
    split,
    source,
    tools,
    reader: new SourceReader(tools.openTensor, signal ?? null),
    onBytes: (bytes) => {
      doneBytes += bytes;
      onProgress?.(doneBytes, totalBytes);
    },
    assertLocked: () => lock.assertHeld(),
  };
  try {
    if (!(await hasSlices(pack))) return await writeSlices(pack, context);
    if (await isSlicesFileReadable(pack)) return await mendSlices(await readSlices(pack), context, tools);
    return { ...(await writeSlices(pack, context)), mendedFiles: [SLICES_FILE] };
  } finally {
    await lock.release();
  }
}

/**
 * Writes measured thresholds into the slices.json of a pack, whose digest they change. Returns the new one.
 * @throws STORAGE_FULL, LockHeldError; else as openSlices
 */
export async function addThresholds(directory: string, theta: readonly MeasuredTheta[]): Promise<string> {
  const pack = await openAnyPack(directory);
  const lock = await acquirePackingLock(pack.directory);
  try {
    const { manifest } = await readSlices(pack);
    await lock.assertHeld();
    return await writeSlicesManifest(pack, { ...manifest, theta: [...theta] });
  } finally {
    await lock.release();
  }
}

function requireCheckpoint({ directory }: Pack, checkpoint: ModelSource | undefined): ModelSource {
  if (checkpoint !== undefined) return checkpoint;
  throw new OdmoeError(
    'USAGE',
    `${directory}: holds slices only, which cannot be made from it again: give the checkpoint that it was made from, and --only`,
  );
}

function layersOf({ shape }: Pick<ModelSource, 'shape'>): number[] {
  return Array.from({ length: shape.expertLayers }, (_, layer) => layer);
}

async function writeSlices(pack: Pack, context: SlicingContext): Promise<SliceOutcome> {
  const { directory, split } = context;
  const { fingerprint } = pack.manifest.source;
  const version = odmoeVersion();
  const plan = { format: 'odmoe-slicing', odmoe_version: version, split, source_fingerprint: fingerprint } as const;
  const journal = await SlicingJournal.open(directory, plan).catch((thrown: unknown) => {
    throw writeFailure(thrown, join(directory, SLICING_JOURNAL_FILE), null);
  });
  const resumedLayers = journal.finished.size;
  const { fileBytes } = sliceLayout(pack.shape, split);
  const missingBytes = (): number =>
    (pack.shape.expertLayers - journal.finished.size) * (fileBytes.upper + fileBytes.lower);
  await requireFreeBytes(directory, missingBytes());
  const layers: SlicedLayer[] = [];
  for (const layer of layersOf(pack)) {
    const finished = journal.finished.get(layer);
    if (finished !== undefined) {
      context.onBytes(layerExpertBytes(context.source, layer));
      layers.push(finished);
      continue;
    }
    try {
      const written = await writeLayerSlices(layer, context);
      await journal.record(written);
      layers.push(written);
    } catch (thrown) {
      throw writeFailure(thrown, join(directory, sliceFileName(layer, 'upper')), missingBytes());
    }
  }
  const manifest: SlicesManifest = {
    format: SLICES_FORMAT,
    format_version: SLICES_FORMAT_VERSION,
    odmoe_version: version,
    split,
    source_fingerprint: fingerprint,
    theta: null,
    files: layers.flatMap(({ files }) => files),
    experts: layers.flatMap(({ experts }) => experts),
  };
  await context.assertLocked();
  const digest = await writeSlicesManifest(pack, manifest);
  await journal.remove();
  return outcomeOf({ directory, manifest, digest }, { resumedLayers, mendedFiles: [], alreadyWhole: false });
}

/** Writes slices.json, which makes the slices whole, and returns its SHA-256. */
async function writeSlicesManifest(pack: Pack, manifest: SlicesManifest): Promise<string> {
  const path = join(pack.directory, SLICES_FILE);
  const text = serializeSlices(manifest);
  parseSlices(JSON.parse(text), pack, path);
  try {
    // The slices are not fetched ones any more, which a worker may replace.
    await rm(join(pack.directory, FETCH_SLICES_JOURNAL_FILE), { force: true });
    await writeFile(path + PARTIAL_SUFFIX, text, { flush: true });
    await rename(path + PARTIAL_SUFFIX, path);
    await syncDirectory(pack.directory);
  } catch (thrown) {
    await rm(path + PARTIAL_SUFFIX, { force: true });
    throw writeFailure(thrown, path, Buffer.byteLength(text));
  }
  return createHash('sha256').update(text).digest('hex');
}

/** Makes the damaged files of whole slices again. They must come out as slices.json says, so that it stays as it is. */
async function mendSlices(slices: Slices, context: SlicingContext, tools: ByteTools): Promise<SliceOutcome> {
  const { directory, split } = context;
  if (slices.split !== split) {
    const [held, wanted] = [pairOfSplit(slices.split), pairOfSplit(split)];
    throw new OdmoeError(
      'USAGE',
      `${directory}: holds slices ${held} already, and a pack holds one pair: remove ${SLICES_FILE} and slices-*.bin there, or make ` +
        `another pack for ${wanted}`,
    );
  }
  const damages = await verifySliceFiles(slices, tools, () => context.reader.assertWanted());
  const mendedFiles = [...new Set(damages.map(({ file }) => file))];
  for (const layer of layersOf(context.source)) {
    if (!SLICES.some((slice) => mendedFiles.includes(sliceFileName(layer, slice)))) {
      context.onBytes(layerExpertBytes(context.source, layer));
      continue;
    }
    await writeLayerSlices(layer, context).catch((thrown: unknown) => {
      throw writeFailure(thrown, join(directory, sliceFileName(layer, 'upper')), null);
    });
  }
  if (damages.length > 0) {
    const left = await verifySliceFiles(slices, tools, () => context.reader.assertWanted());
    if (left.length > 0)
      throw damageError(directory, left, `${SLICES_FILE} is not what this odmoe makes: remove it and slice again`);
  }
  await rm(join(directory, SLICING_JOURNAL_FILE), { force: true });
  return outcomeOf(slices, { resumedLayers: 0, mendedFiles, alreadyWhole: true });
}

function outcomeOf(
  { directory, manifest, digest }: Pick<Slices, 'directory' | 'manifest' | 'digest'>,
  state: Pick<SliceOutcome, 'resumedLayers' | 'mendedFiles' | 'alreadyWhole'>,
): SliceOutcome {
  const { split, theta } = manifest;
  return { directory, pair: pairOfSplit(split), digest, ...sliceFileBytes(manifest), theta, ...state };
}
