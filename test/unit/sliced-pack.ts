import { readFile } from 'node:fs/promises';
import { openTensor } from '../../native/index.js';
import { NATIVE_SLICING_TOOLS } from '../../packs/slices/native-slicing-tools.js';
import { addSlices, type SliceOptions, type SliceOutcome } from '../../packs/slices/add-slices.js';
import type { OpenFile } from '../../packs/packing/pack-file.js';
import type { ChunkLocation, SlicedSplit, TensorSource } from '../../shared/model/tensor-source.js';
import { noise, TINY_CONFIG, tinyTensors, type TinyTensor } from './tiny-checkpoint.js';
import { pack, withCheckpoint } from './tiny-pack.js';

/** BF16 values between 0.008 and 2, of both signs: every group can be sliced. */
export function finiteValues(sizeBytes: number, seed: number): Uint8Array {
  return noise(sizeBytes, seed).map((byte, index) => (index % 2 === 1 ? (byte & 0x83) | 0x3c : byte));
}

export function finiteTensors(config: Readonly<Record<string, unknown>> = TINY_CONFIG): TinyTensor[] {
  return tinyTensors(config, () => 'BF16', finiteValues);
}

/** A pack of a checkpoint that can be sliced. */
export async function withPack(
  use: (output: string, checkpoint: string) => Promise<void>,
  config: Readonly<Record<string, unknown>> = TINY_CONFIG,
): Promise<void> {
  await withCheckpoint(
    async (checkpoint, output) => {
      await pack(checkpoint, output, { codec: { codec: 'huffman', level: null }, tools: NATIVE_SLICING_TOOLS });
      await use(output, checkpoint);
    },
    finiteTensors(config),
    config,
  );
}

export async function slice(
  directory: string,
  split: SlicedSplit = 'sliced84',
  options: SliceOptions & { openFile?: OpenFile } = {},
): Promise<SliceOutcome> {
  const { openFile = NATIVE_SLICING_TOOLS.openFile, ...others } = options;
  return addSlices(directory, split, others, { ...NATIVE_SLICING_TOOLS, openFile });
}

/** A chunk's bytes as its file has them. */
export async function storedBytes({ path, offsetBytes, storedBytes: size }: ChunkLocation): Promise<Uint8Array> {
  return (await readFile(path)).subarray(offsetBytes, offsetBytes + size);
}

/** The bytes of a tensor in each plane. */
export async function planesOf(source: TensorSource): Promise<Uint8Array[]> {
  const tensor = openTensor(source);
  try {
    return await tensor.read(source.rows);
  } finally {
    tensor.dispose();
  }
}
