import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expectedTensors } from '../../packs/checkpoint/expected-tensors.js';
import { parseModelConfig } from '../../packs/checkpoint/model-config.js';
import type { ExpectedTensor } from '../../packs/model-config/model-family.js';
import type { WeightDtype } from '../../shared/model/weight-dtype.js';

/** A temporary directory for one test; removed after it. */
export async function withTemporaryDirectory(use: (directory: string) => Promise<void>): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'odmoe-test-'));
  try {
    await use(directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

export const TINY_CONFIG: Readonly<Record<string, unknown>> = {
  architectures: ['MixtralForCausalLM'],
  model_type: 'mixtral',
  vocab_size: 24,
  hidden_size: 16,
  intermediate_size: 20,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  num_local_experts: 3,
  num_experts_per_tok: 2,
  max_position_embeddings: 64,
  rope_theta: 10000,
  eos_token_id: 2,
};

export interface TinyTensor {
  name: string;
  dtype: string;
  shape: readonly number[];
  data: Uint8Array;
}

/** Bytes of a safetensors file. */
export function safetensorsBytes(tensors: readonly TinyTensor[], metadata: Record<string, string> = {}): Buffer {
  let offset = 0;
  // fromEntries, so that a tensor may even be named __proto__.
  const header = Object.fromEntries<unknown>([
    ['__metadata__', metadata],
    ...tensors.map(({ name, dtype, shape, data }): [string, unknown] => {
      offset += data.length;
      return [name, { dtype, shape, data_offsets: [offset - data.length, offset] }];
    }),
  ]);
  return withHeader(
    Buffer.from(JSON.stringify(header)),
    tensors.map(({ data }) => data),
  );
}

/** A length field, the header as given, and the data. */
export function withHeader(header: Uint8Array, data: readonly Uint8Array[]): Buffer {
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([length, header, ...data]);
}

/** Deterministic bytes, different for each seed. */
export function noise(sizeBytes: number, seed: number): Uint8Array {
  let state = (seed * 2654435761) >>> 0 || 1;
  return Uint8Array.from({ length: sizeBytes }, () => {
    state ^= state << 13;
    state >>>= 0;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state & 0xff;
  });
}

const VALUE_BYTES: Readonly<Record<WeightDtype, number>> = { BF16: 2, F16: 2, F32: 4 };

/** Every tensor of a checkpoint with this config.json, filled with noise: any bit pattern may come. */
export function tinyTensors(
  config: Readonly<Record<string, unknown>> = TINY_CONFIG,
  dtypeOf: (expected: ExpectedTensor) => WeightDtype = () => 'BF16',
  dataOf: (sizeBytes: number, seed: number) => Uint8Array = noise,
): TinyTensor[] {
  const { config: parsed } = parseModelConfig(config, 'config.json');
  const { experts } = parsed.shape;
  return [...expectedTensors(parsed)].map((expected, index) => {
    const { name, dimensions, encoding } = expected;
    if (encoding === 'integers')
      return { name, dtype: 'I64', shape: dimensions, data: tokenTable(dimensions, experts) };
    const dtype = dtypeOf(expected);
    const values = expected.dimensions.reduce((product, size) => product * size, 1);
    return {
      name: expected.name,
      dtype,
      shape: expected.dimensions,
      data: dataOf(values * VALUE_BYTES[dtype], index + 1),
    };
  });
}

/** A table of experts by token, none twice in a row, as numbers of 64 bits. */
export function tokenTable([tokens = 0, perToken = 1]: readonly number[], experts: number): Uint8Array {
  const named = BigInt64Array.from({ length: tokens * perToken }, (_, index) => {
    const [token, rank] = [Math.floor(index / perToken), index % perToken];
    return BigInt((token * (perToken + 1) + rank) % experts);
  });
  return new Uint8Array(named.buffer);
}

/** Writes a checkpoint of one file, or of `shards` files with an index. */
export async function writeTinyCheckpoint(
  directory: string,
  tensors: readonly TinyTensor[] = tinyTensors(),
  options: { config?: Readonly<Record<string, unknown>>; shards?: number } = {},
): Promise<void> {
  await mkdir(directory, { recursive: true });
  await writeFile(join(directory, 'config.json'), JSON.stringify(options.config ?? TINY_CONFIG));
  const shards = options.shards ?? 1;
  if (shards === 1) {
    await writeFile(join(directory, 'model.safetensors'), safetensorsBytes(tensors));
    return;
  }
  const weightMap: Record<string, string> = {};
  for (let shard = 0; shard < shards; shard += 1) {
    const name = `model-${String(shard + 1).padStart(5, '0')}-of-${String(shards).padStart(5, '0')}.safetensors`;
    const own = tensors.filter((_, index) => index % shards === shard);
    for (const tensor of own) weightMap[tensor.name] = name;
    await writeFile(join(directory, name), safetensorsBytes(own));
  }
  await writeFile(join(directory, 'model.safetensors.index.json'), JSON.stringify({ weight_map: weightMap }));
}
