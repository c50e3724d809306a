import type { FileHandle } from 'node:fs/promises';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import type { ModelConfig } from '../model-config/model-family.js';
import { storedBytes } from '../../shared/model/part-sizes.js';
import { openFile, readFailure } from '../../shared/base/files/read-file.js';
import { CHECKPOINT_FILE_ERRORS, readExactly } from './safetensors-file.js';
import { EXPERT_MATRICES, type Split, type TensorSource } from '../../shared/model/tensor-source.js';
import { rowBytes } from '../../shared/model/weight-dtype.js';
import type { TensorFinder } from './checkpoint-tensors.js';
import { expectedBiases } from './expected-tensors.js';

export interface ExpertBiases {
  /** Number among the expert layers. */
  layer: number;
  expert: number;
  /** intermediateSize for gate, as many for up, hiddenSize for down; null: a file with some of them is deleted. */
  biases: Float32Array | null;
  /** Files that hold the biases, and their bytes there. */
  paths: ReadonlySet<string>;
  storedBytes: number;
}

/** Reads the biases of all experts, if they have any. They are small, and are passed on as values. `gone`: true for deleted files. */
export async function* readCheckpointBiases(
  config: ModelConfig,
  finder: Pick<TensorFinder, 'findBias'>,
  gone: (path: string) => boolean,
): AsyncGenerator<ExpertBiases> {
  const files = new Map<string, FileHandle>();
  try {
    let sources: TensorSource[] = [];
    for (const expected of expectedBiases(config)) {
      sources.push(finder.findBias(expected));
      if (sources.length < EXPERT_MATRICES.length || expected.place.kind !== 'expert') continue;
      const { layer, expert } = expected.place;
      const paths = new Set(sources.flatMap(({ chunks }) => chunks.map(({ path }) => path)));
      const biases = [...paths].some(gone) ? null : await readVectors(sources, files);
      const bytes = sources.reduce((sum, source) => sum + storedBytes(source), 0);
      sources = [];
      yield { layer, expert, biases, paths, storedBytes: bytes };
    }
  } finally {
    for (const file of files.values()) await file.close();
  }
}

/** The values of several vectors, one behind another. */
async function readVectors(sources: readonly TensorSource[], files: Map<string, FileHandle>): Promise<Float32Array> {
  const values = new Float32Array(sources.reduce((sum, { columns }) => sum + columns, 0));
  let at = 0;
  for (const source of sources) {
    values.set(await readVector(source, files), at);
    at += source.columns;
  }
  return values;
}

/** The values of a vector: all values of a stored one, or every `stepColumns`-th value of one row. `files`: those that are open. */
export async function readVector(source: TensorSource, files: Map<string, FileHandle>): Promise<Float32Array> {
  const chunk = requirePresent(source.chunks[0], 'a vector of a checkpoint lies somewhere.');
  const view = source.view ?? { storedColumns: source.columns, firstRow: 0, firstColumn: 0, stepColumns: 1 };
  const split = valueSplit(source.split);
  const valueBytes = rowBytes(split, 1);
  const storedRowBytes = rowBytes(split, view.storedColumns);
  try {
    const file = files.get(chunk.path) ?? (await openFile(chunk.path));
    files.set(chunk.path, file);
    const row = await readExactly(file, chunk.path, chunk.offsetBytes + view.firstRow * storedRowBytes, storedRowBytes);
    return Float32Array.from({ length: source.columns }, (_, index) =>
      valueAt(row, (view.firstColumn + index * view.stepColumns) * valueBytes, split),
    );
  } catch (thrown) {
    throw readFailure(thrown, chunk.path, CHECKPOINT_FILE_ERRORS);
  }
}

type PlainSplit = 'none-bf16' | 'none-fp16' | 'none-fp32';

function valueSplit(split: Split): PlainSplit {
  return split === 'none-fp16' || split === 'none-fp32' ? split : 'none-bf16';
}

function valueAt(bytes: Buffer, at: number, split: PlainSplit): number {
  if (split === 'none-fp32') return bytes.readFloatLE(at);
  if (split === 'none-fp16') return halfValue(bytes.readUInt16LE(at));
  const single = new DataView(new ArrayBuffer(4));
  single.setUint32(0, bytes.readUInt16LE(at) << 16);
  return single.getFloat32(0);
}

/** Value of an FP16 number, from its bits. */
export function halfValue(bits: number): number {
  const sign = bits >= 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const mantissa = bits & 0x3ff;
  if (exponent === 0x1f) return mantissa === 0 ? sign * Infinity : NaN;
  const [significand, shift] = exponent === 0 ? [mantissa, 24] : [mantissa + 0x400, 25 - exponent];
  return (sign * significand) / powerOfTwo(shift);
}

function powerOfTwo(exponent: number): number {
  return exponent < 0 ? 1 / (1 << -exponent) : 1 << exponent;
}
