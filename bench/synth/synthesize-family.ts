import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expectedBiases, expectedTensors } from '../../packs/checkpoint/expected-tensors.js';
import { parseModelConfig } from '../../packs/checkpoint/model-config.js';
import type { ExpectedTensor, ModelConfig, TensorPlace } from '../../packs/model-config/model-family.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { CheckpointWriter, type TensorContents } from '../checkpoint/checkpoint-writer.js';
import { prepareCheckpointDirectory, type ShardTensor } from '../checkpoint/safetensors-shards.js';
import { GaussianFiller, RandomBits } from './gaussian-values.js';
import { repeatedTokens, type RepeatedTokens, repeatingContents } from './repeating-answers.js';
import type { SynthOptions, SynthOutcome } from './synthesize-checkpoint.js';

const VALUE_BYTES = { U8: 1, BF16: 2, I64: 8 } as const;
/** Columns of an MXFP4 matrix that share a scale, and the bytes of their codes. */
const MXFP4_COLUMNS = 32;
const MXFP4_CODE_BYTES = 16;
/** Scales of MXFP4: powers of two from 2^-8 to 2^-5. */
const LEAST_SCALE = 119;
const SCALES = 4;
/** Deviations that are large enough that every part of a small model has a visible effect. */
const MATRIX_DEVIATION = 0.15;
const VECTOR_DEVIATION = 0.5;

interface FamilyTensor extends ShardTensor {
  /** Number of the tensor's own stream of random bits. */
  stream: number;
  /** experts: a table of experts by token. */
  contents: 'gaussian' | 'codes' | 'scales' | 'experts';
  /** The part of the model for which the tensor was named first. */
  place: TensorPlace;
}

/**
 * Writes a checkpoint of any family with random BF16 weights (MXFP4 if config.json has experts in that format), and with the head that drafts where
 * config.json counts one. The same config and seed give the same checkpoint. config.json is written last, so that an unfinished directory is no checkpoint.
 * @throws MODEL_UNSUPPORTED, MODEL_CORRUPT, USAGE, STORAGE_FULL, STORAGE_FAILED, CANCELLED
 */
export async function synthesizeFamily(
  directory: string,
  config: Record<string, unknown>,
  options: Omit<SynthOptions, 'dtype'>,
): Promise<SynthOutcome> {
  const { config: parsed } = parseModelConfig(config, 'the config.json given');
  const { vocabSize, experts } = parsed.shape;
  const repeated = repeatedTokens(options, 'BF16', vocabSize, parsed.tiedEmbeddings);
  const head = countedHeads(config) === 0 ? [] : headTensors(parsed);
  const tensors = distinctTensors([...expectedTensors(parsed), ...expectedBiases(parsed), ...head]);
  const weightBytes = tensors.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  await prepareCheckpointDirectory(directory, weightBytes);
  const writer = new CheckpointWriter(options, weightBytes, randomContents(options.seed, experts, repeated));
  try {
    const files = await writer.writeWeights(directory, tensors);
    await writeFile(join(directory, 'generation_config.json'), JSON.stringify({ bos_token_id: 1, eos_token_id: 2 }));
    await writeFile(join(directory, 'config.json'), JSON.stringify(config, null, 2));
    return { files, weightBytes, parameters: weightBytes / VALUE_BYTES.BF16 };
  } catch (thrown) {
    throw writeFailure(thrown, directory, weightBytes - writer.doneBytes);
  }
}

/** Some families have the names of a head's tensors whether or not there is one. */
function countedHeads(config: Record<string, unknown>): number {
  return Number(config['num_nextn_predict_layers'] ?? config['mtp_num_hidden_layers'] ?? 0);
}

/** Without those of which the model's own stand for the head's. */
function headTensors({ draftHead }: ModelConfig): ExpectedTensor[] {
  const all = draftHead === undefined ? [] : [...expectedTensors(draftHead)];
  return all.filter(({ place }) => place.kind === 'expert' || (place.role !== 'embedding' && place.role !== 'lmHead'));
}

/** Several parts of a model may be views of one tensor. */
function distinctTensors(expected: readonly ExpectedTensor[]): FamilyTensor[] {
  const tensors = new Map<string, FamilyTensor>();
  const add = (
    { name, place }: Pick<ExpectedTensor, 'name' | 'place'>,
    dtype: keyof typeof VALUE_BYTES,
    shape: readonly number[],
    contents: FamilyTensor['contents'],
  ): void => {
    if (tensors.has(name)) return;
    const sizeBytes = shape.reduce((product, size) => product * size, VALUE_BYTES[dtype]);
    tensors.set(name, { name, place, dtype, shape, sizeBytes, contents, stream: tensors.size });
  };
  for (const tensor of expected) {
    const { name, dimensions, encoding, place } = tensor;
    if (encoding === 'values') {
      add(tensor, 'BF16', dimensions, 'gaussian');
      continue;
    }
    if (encoding === 'integers') {
      add(tensor, 'I64', dimensions, 'experts');
      continue;
    }
    const blocks = [...dimensions.slice(0, -1), (dimensions.at(-1) ?? 0) / MXFP4_COLUMNS];
    add({ name: `${name}_blocks`, place }, 'U8', [...blocks, MXFP4_CODE_BYTES], 'codes');
    add({ name: `${name}_scales`, place }, 'U8', blocks, 'scales');
  }
  return [...tensors.values()];
}

function randomContents(
  seed: number,
  experts: number,
  repeated: RepeatedTokens | null,
): (tensor: FamilyTensor) => TensorContents {
  const matrices = new GaussianFiller('BF16', MATRIX_DEVIATION);
  const vectors = new GaussianFiller('BF16', VECTOR_DEVIATION);
  return ({ shape, stream, contents, place }) => {
    const repeating = repeated === null ? null : repeatingContents(repeated, place, shape);
    if (repeating !== null) return repeating;
    const random = new RandomBits(seed, stream);
    if (contents === 'gaussian') {
      const filler = shape.length === 1 ? vectors : matrices;
      return { fill: (piece) => filler.fill(piece, random) };
    }
    if (contents === 'experts') return { fill: tableFiller(shape, experts) };
    const draw =
      contents === 'codes' ? () => random.next() >>> 24 : () => LEAST_SCALE + ((random.next() >>> 8) % SCALES);
    return {
      fill: (piece) => {
        for (let at = 0; at < piece.length; at += 1) piece[at] = draw();
      },
    };
  };
}

/** Fills a table of experts by token, none of them twice in a row, piece by piece. */
function tableFiller([, perToken = 1]: readonly number[], experts: number): TensorContents['fill'] {
  let filled = 0;
  return (piece) => {
    for (let at = 0; at < piece.length; at += 1, filled += 1) {
      const place = Math.floor(filled / VALUE_BYTES.I64);
      const [token, rank] = [Math.floor(place / perToken), place % perToken];
      const expert = (token * (perToken + 1) + rank) % experts;
      piece[at] = Math.floor(expert / 256 ** (filled % VALUE_BYTES.I64)) % 256;
    }
  };
}
