import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Checkpoint } from '../checkpoint/checkpoint.js';
import type { CheckpointDraftHead } from '../checkpoint/draft-head.js';
import { fileExists, readFailure } from '../../shared/base/files/read-file.js';
import { CHECKPOINT_FILE_ERRORS } from '../checkpoint/safetensors-file.js';
import { exactFormatOf, isQuantizedSplit, planeRowBytes, planeSplit } from '../../shared/model/weight-dtype.js';
import {
  EXPERT_MATRICES,
  type ChunkCodec,
  type ModelSource,
  type TensorSource,
} from '../../shared/model/tensor-source.js';
import type { FinishedFile } from '../format/manifest.js';
import {
  alignUp,
  COPIED_FILES,
  DENSE_FILE,
  DRAFT_DENSE_FILE,
  DRAFT_EXPERTS_FILE,
  expertBiasBytes,
  expertFileName,
  isScalesPlane,
  placeRawPlanes,
  shardCodec,
  shardedPlanes,
  shardRanges,
} from '../format/pack-layout.js';
import { denseLayout, writeDenseFile } from './dense-file.js';
import { writeExpertFile } from './expert-file.js';
import { denseBytes, layerExpertBytes, ownDensePlaces } from './model-bytes.js';
import type { PackFile } from './pack-file.js';
import type { PackingContext } from './packing-context.js';

/** A file of the future pack. */
export interface PlannedFile {
  name: string;
  /** Bytes of the weights from which it is made, for progress. */
  sourceBytes: number;
  /** Weight files of the checkpoint from which it is made. */
  sourcePaths: ReadonlySet<string>;
  /** Expected bytes on the disk. */
  expectedBytes: number;
  write(file: PackFile): Promise<Omit<FinishedFile, 'file'>>;
}

/** Every file of the pack but its manifest, in the order of writing. */
export async function planFiles(checkpoint: Checkpoint, context: PackingContext): Promise<PlannedFile[]> {
  const planned: PlannedFile[] = [];
  for (const name of COPIED_FILES) {
    const made = checkpoint.madeFiles;
    const content = made?.get(name);
    if (content !== undefined) planned.push(planMade(name, content));
    const path = join(checkpoint.directory, name);
    if (made === null && (await fileExists(path))) planned.push(await planCopy(name, path, context));
  }
  planned.push({
    name: DENSE_FILE,
    sourceBytes: denseBytes(checkpoint),
    sourcePaths: densePaths(checkpoint),
    expectedBytes: denseLayout(checkpoint).sizeBytes,
    write: (file) => writeDenseFile(checkpoint, file, context),
  });
  const layers = context.slicesOnly ? 0 : checkpoint.shape.expertLayers;
  for (let layer = 0; layer < layers; layer += 1) {
    planned.push({
      name: expertFileName(layer),
      sourceBytes: layerExpertBytes(checkpoint, layer),
      sourcePaths: layerPaths(checkpoint, layer),
      expectedBytes: expectedLayerBytes(checkpoint, layer, context),
      write: (file) => writeExpertFile(checkpoint, layer, file, context),
    });
  }
  if (checkpoint.draftHead) planned.push(...planDraftFiles(checkpoint.draftHead, context));
  return planned;
}

/** The files of a head that drafts. */
function planDraftFiles(head: CheckpointDraftHead, context: PackingContext): PlannedFile[] {
  const dense: PlannedFile = {
    name: DRAFT_DENSE_FILE,
    sourceBytes: denseBytes(head),
    sourcePaths: densePaths(head),
    expectedBytes: denseLayout(head).sizeBytes,
    write: (file) => writeDenseFile(head, file, context),
  };
  if (head.shape.expertLayers === 0) return [dense];
  const experts: PlannedFile = {
    name: DRAFT_EXPERTS_FILE,
    sourceBytes: layerExpertBytes(head, 0),
    sourcePaths: expertPaths(head, 0),
    expectedBytes: expectedLayerBytes(head, 0, context),
    write: (file) => writeExpertFile(head, 0, file, context, DRAFT_EXPERTS_FILE),
  };
  return [dense, experts];
}

function densePaths(model: ModelSource): Set<string> {
  const sources = ownDensePlaces(model).map(({ role, layer }) => model.dense(role, layer));
  return new Set(sources.flatMap(({ chunks }) => chunks.map(({ path }) => path)));
}

function layerPaths(checkpoint: Checkpoint, layer: number): Set<string> {
  return new Set([...checkpoint.expertBiases(layer).paths, ...expertPaths(checkpoint, layer)]);
}

/** Files of the experts' matrices. */
function expertPaths(model: ModelSource, layer: number): Set<string> {
  const paths = new Set<string>();
  for (let expert = 0; expert < model.shape.experts; expert += 1) {
    const sources = model.expert(layer, expert);
    for (const part of EXPERT_MATRICES) for (const { path } of sources[part].chunks) paths.add(path);
  }
  return paths;
}

/** A small file that is made from the model's own file. */
function planMade(name: string, content: Uint8Array): PlannedFile {
  return {
    name,
    sourceBytes: 0,
    sourcePaths: new Set(),
    expectedBytes: content.length,
    write: async (file) => {
      await file.writeAt(0, content);
      await file.completeThrough(content.length);
      return { dense: [], experts: [] };
    },
  };
}

async function planCopy(name: string, path: string, context: PackingContext): Promise<PlannedFile> {
  const { size } = await stat(path).catch((thrown: unknown) => {
    throw readFailure(thrown, path, CHECKPOINT_FILE_ERRORS);
  });
  return {
    name,
    sourceBytes: 0,
    sourcePaths: new Set(),
    expectedBytes: size,
    write: async (file) => {
      let writtenBytes = 0;
      for await (const bytes of context.reader.fileBytes(path, size)) {
        await file.writeAt(writtenBytes, bytes);
        writtenBytes += bytes.length;
      }
      await file.completeThrough(size);
      return { dense: [], experts: [] };
    },
  };
}

/**
 * Approximate stored bytes for one plain byte of a plane: exponents of trained weights have some 2.6 bits of information. It is used for the
 * check of free space, which should refuse only packs that cannot fit.
 */
const EXPECTED_RATIO: Readonly<Record<ChunkCodec, number>> = {
  raw: 1,
  zstd: 0.37,
  lz4hc: 0.6,
  fixed4: 0.52,
  huffman: 0.35,
  packed3: 0.375,
  e4m3: 0.8,
};

function expectedLayerBytes(checkpoint: ModelSource, layer: number, context: PackingContext): number {
  const biasBytes = alignUp(expertBiasBytes(checkpoint.shape));
  let bytes = 0;
  for (let expert = 0; expert < checkpoint.shape.experts; expert += 1) {
    const sources = checkpoint.expert(layer, expert);
    bytes += EXPERT_MATRICES.reduce((sum, part) => sum + expectedExtentBytes(sources[part], context), biasBytes);
  }
  return bytes;
}

function expectedExtentBytes({ rows, columns, split: plain }: TensorSource, context: PackingContext): number {
  const { codec } = context.codec;
  const split = planeSplit(exactFormatOf(plain), codec);
  let bytes = placeRawPlanes(split, codec, rows, columns, 0).endBytes;
  const sharded = shardedPlanes(split, codec);
  for (const [plane, rowBytes] of planeRowBytes(split, columns).entries()) {
    if (isScalesPlane(split, plane)) bytes = alignUp(bytes + rows * rowBytes);
    if (!sharded.includes(plane)) continue;
    const ratio =
      isQuantizedSplit(split) && codec === 'zstd' ? 1 : EXPECTED_RATIO[shardCodec(split, plane, codec) ?? 'raw'];
    for (const shard of shardRanges(rows, context.shards)) bytes = alignUp(bytes + shard.rows * rowBytes * ratio);
  }
  return bytes;
}
