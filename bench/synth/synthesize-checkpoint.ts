import { writeFile } from 'node:fs/promises';
import { endianness } from 'node:os';
import { join } from 'node:path';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { expectedTensors } from '../../packs/checkpoint/expected-tensors.js';
import { parseModelConfig } from '../../packs/checkpoint/model-config.js';
import { valueBytes, type WeightDtype } from '../../shared/model/weight-dtype.js';
import { CheckpointWriter, type TensorContents } from '../checkpoint/checkpoint-writer.js';
import { prepareCheckpointDirectory, type ShardTensor } from '../checkpoint/safetensors-shards.js';
import type { TensorPlace } from '../../packs/model-config/model-family.js';
import { GaussianFiller, RandomBits } from './gaussian-values.js';
import { fillOnes, repeatedTokens, type RepeatedTokens, repeatingContents } from './repeating-answers.js';

/** Shape of a random Mixtral, with the names of config.json. */
export interface SynthShape {
  hidden_size: number;
  intermediate_size: number;
  num_hidden_layers: number;
  num_local_experts: number;
  num_experts_per_tok: number;
  num_attention_heads: number;
  num_key_value_heads: number;
  head_dim: number;
  vocab_size: number;
  max_position_embeddings: number;
}

export interface SynthOptions {
  dtype: WeightDtype;
  seed: number;
  /** Answers run through so many tokens again and again; left out: they are as random as the weights. */
  repeat?: number;
  onProgress?: (doneBytes: number, totalBytes: number) => void;
  signal?: AbortSignal;
}

export interface SynthOutcome {
  files: string[];
  weightBytes: number;
  parameters: number;
}

/** Deviation of the weights: transformers' initializer_range, which keeps activations finite in models of any depth. */
const WEIGHT_DEVIATION = 0.02;
const TORCH_DTYPE: Readonly<Record<WeightDtype, string>> = { BF16: 'bfloat16', F16: 'float16', F32: 'float32' };

interface SynthTensor extends ShardTensor {
  place: TensorPlace;
  /** Number of the tensor's own stream of random bits. */
  stream: number;
}

/**
 * Writes a Mixtral checkpoint with Gaussian weights (norms are ones). The same shape, type and seed give the same checkpoint. It needs a few
 * megabytes of memory for any size. config.json is written last, so that an unfinished directory is no checkpoint.
 * @throws USAGE, STORAGE_FULL, STORAGE_FAILED, CANCELLED
 */
export async function synthesizeCheckpoint(
  directory: string,
  shape: SynthShape,
  options: SynthOptions,
): Promise<SynthOutcome> {
  const config = configOf(shape, options.dtype);
  const tensors = tensorsOf(config, options.dtype);
  const weightBytes = tensors.reduce((sum, tensor) => sum + tensor.sizeBytes, 0);
  const repeated = repeatedTokens(options, options.dtype, shape.vocab_size, false);
  await prepareCheckpointDirectory(directory, weightBytes);
  const writer = new CheckpointWriter(options, weightBytes, gaussianContents(options, repeated));
  try {
    const files = await writer.writeWeights(directory, tensors);
    await writeFile(join(directory, 'generation_config.json'), JSON.stringify({ bos_token_id: 1, eos_token_id: 2 }));
    await writeFile(join(directory, 'config.json'), JSON.stringify(config, null, 2));
    return { files, weightBytes, parameters: weightBytes / valueBytes(options.dtype) };
  } catch (thrown) {
    throw writeFailure(thrown, directory, weightBytes - writer.doneBytes);
  }
}

function configOf(shape: SynthShape, dtype: WeightDtype): Record<string, unknown> {
  return {
    architectures: ['MixtralForCausalLM'],
    model_type: 'mixtral',
    ...shape,
    hidden_act: 'silu',
    rms_norm_eps: 1e-5,
    rope_theta: 1e6,
    sliding_window: null,
    tie_word_embeddings: false,
    bos_token_id: 1,
    eos_token_id: 2,
    torch_dtype: TORCH_DTYPE[dtype],
  };
}

function tensorsOf(config: Record<string, unknown>, dtype: WeightDtype): SynthTensor[] {
  try {
    const { config: parsed } = parseModelConfig(config, 'the shape asked for');
    return [...expectedTensors(parsed)].map(({ name, dimensions, place }, stream) => ({
      name,
      place,
      dtype,
      shape: dimensions,
      sizeBytes: dimensions.reduce((product, size) => product * size, valueBytes(dtype)),
      stream,
    }));
  } catch (thrown) {
    if (thrown instanceof OdmoeError) throw new OdmoeError('USAGE', thrown.message, { cause: thrown });
    throw thrown;
  }
}

function gaussianContents(
  { dtype, seed }: SynthOptions,
  repeated: RepeatedTokens | null,
): (tensor: SynthTensor) => TensorContents {
  if (endianness() !== 'LE')
    throw new OdmoeError('MODEL_UNSUPPORTED', 'this machine is big-endian; synthesize elsewhere');
  const filler = new GaussianFiller(dtype, WEIGHT_DEVIATION);
  return ({ shape, stream, place }) => {
    const repeating = repeated === null ? null : repeatingContents(repeated, place, shape);
    if (repeating !== null) return repeating;
    if (shape.length === 1) return { fill: (piece) => fillOnes(piece, dtype) };
    const random = new RandomBits(seed, stream);
    return { fill: (piece) => filler.fill(piece, random) };
  };
}
