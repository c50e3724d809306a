import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import type { Checkpoint, ModelTensor } from '../../shared/checkpoint/checkpoint.js';
import { EXPERT_PARTS, type ExpertPart } from '../../shared/model/model-family.js';
import { fileExists, readFailure } from '../../shared/model/read-file.js';
import { CHECKPOINT_FILE_ERRORS } from '../../shared/model/safetensors-file.js';
import { planeSplit } from '../../shared/model/weight-dtype.js';
import type { ChunkCodec } from '../../shared/model/tensor-source.js';
import type { FinishedFile } from '../format/manifest.js';
import {
  alignUp,
  COPIED_FILES,
  DENSE_FILE,
  expertFileName,
  placeRawPlanes,
  shardCodec,
  shardedPlanes,
  shardRanges,
} from '../format/pack-layout.js';
import { denseLayout, writeDenseFile } from './dense-file.js';
import { type ExpertTensors, writeExpertFile } from './expert-file.js';
import type { PackFile } from './pack-file.js';
import type { PackingContext } from './packing-context.js';

/** A file that a pack will have. */
export interface PlannedFile {
  name: string;
  /** Bytes of weights that it is made from, for progress. */
  sourceBytes: number;
  /** What it will take on the disk. */
  expectedBytes: number;
  write(file: PackFile): Promise<Omit<FinishedFile, 'file'>>;
}

/** Every file of the pack but its manifest, in the order of writing. */
export async function planFiles(checkpoint: Checkpoint, context: PackingContext): Promise<PlannedFile[]> {
  const planned: PlannedFile[] = [];
  for (const name of COPIED_FILES) {
    const path = join(checkpoint.directory, name);
    if (await fileExists(path)) planned.push(await planCopy(name, path, context));
  }
  const dense = checkpoint.tensors.filter((tensor) => tensor.place.kind === 'dense');
  planned.push({
    name: DENSE_FILE,
    sourceBytes: sumBytes(dense),
    expectedBytes: denseLayout(dense).sizeBytes,
    write: (file) => writeDenseFile(dense, file, context),
  });
  for (const [layer, experts] of expertsByLayer(checkpoint).entries()) {
    const tensors = experts.flatMap((expert) => EXPERT_PARTS.map((part) => expert[part]));
    planned.push({
      name: expertFileName(layer),
      sourceBytes: sumBytes(tensors),
      expectedBytes: tensors.reduce((sum, tensor) => sum + expectedExtentBytes(tensor, context), 0),
      write: (file) => writeExpertFile(layer, experts, file, context),
    });
  }
  return planned;
}

async function planCopy(name: string, path: string, context: PackingContext): Promise<PlannedFile> {
  const { size } = await stat(path).catch((thrown: unknown) => {
    throw readFailure(thrown, path, CHECKPOINT_FILE_ERRORS);
  });
  return {
    name,
    sourceBytes: 0,
    expectedBytes: size,
    write: async (file) => {
      let writtenBytes = 0;
      for await (const piece of context.reader.pieces(path, 0, size)) {
        await file.writeAt(writtenBytes, piece);
        writtenBytes += piece.length;
      }
      await file.completeThrough(size);
      return { dense: [], experts: [] };
    },
  };
}

function expertsByLayer(checkpoint: Checkpoint): ExpertTensors[][] {
  const { shape } = checkpoint;
  const found = Array.from({ length: shape.layers }, () =>
    Array.from({ length: shape.experts }, (): Partial<Record<ExpertPart, ModelTensor>> => ({})),
  );
  for (const tensor of checkpoint.tensors) {
    if (tensor.place.kind !== 'expert') continue;
    const expert = found[tensor.place.layer]?.[tensor.place.expert];
    if (expert !== undefined) expert[tensor.place.part] = tensor;
  }
  return found.map((experts) => experts.map(({ gate, up, down }) => wholeExpert(gate, up, down)));
}

function wholeExpert(gate?: ModelTensor, up?: ModelTensor, down?: ModelTensor): ExpertTensors {
  if (gate === undefined || up === undefined || down === undefined) {
    throw new OdmoeError('INTERNAL', 'an opened checkpoint lacks a matrix of an expert');
  }
  return { gate, up, down };
}

/**
 * Stored bytes of a plain byte of a plane, about: trained weights have some 2.6 bits of information in an exponent. For the check of
 * free space, which should refuse only what cannot fit.
 */
const EXPECTED_RATIO: Readonly<Record<ChunkCodec, number>> = {
  raw: 1,
  zstd: 0.37,
  lz4hc: 0.6,
  fixed4: 0.52,
  huffman: 0.35,
  packed3: 0.375,
};

function expectedExtentBytes(tensor: ModelTensor, { codec, shards }: PackingContext): number {
  const [rows = 1, columns = 1] = tensor.dimensions;
  const split = planeSplit(tensor.dtype, codec.codec);
  let bytes = placeRawPlanes(split, rows * columns, 0).endBytes;
  for (const plane of shardedPlanes(split)) {
    const ratio = EXPECTED_RATIO[shardCodec(split, plane, codec.codec) ?? 'raw'];
    for (const { values } of shardRanges(rows, columns, shards)) bytes = alignUp(bytes + values * ratio);
  }
  return bytes;
}

function sumBytes(tensors: readonly ModelTensor[]): number {
  return tensors.reduce((sum, tensor) => sum + tensor.sizeBytes, 0);
}
