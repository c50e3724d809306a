import { z } from 'zod';
import type { ChunkCodec, ModelShape } from '../../shared/model/tensor-source.js';
import { WEIGHT_DTYPES } from '../../shared/model/weight-dtype.js';
import { PACK_CODECS } from './pack-codec.js';
import { isPackFileName, PACK_FORMAT, PACK_FORMAT_VERSION, SHARDS_LIMIT } from './pack-layout.js';

/** manifest.json, format version 2 (docs/pack-format.md). */

const bytes = z.int().min(0);
const positive = z.int().min(1);
const sha256 = z.string().regex(/^[0-9a-f]{64}$/, 'expected 64 lower-case hexadecimal digits');
const crc32c = z.int().min(0).max(0xffffffff);
const fileName = z.string().refine(isPackFileName, 'expected the name of a file of a pack');

/** Longest name of a model: it travels in a DNS record of at most 255 bytes. */
export const MODEL_NAME_LIMIT = 100;

export function isModelName(name: string): boolean {
  return name.length >= 1 && name.length <= MODEL_NAME_LIMIT && !/\p{Control}/u.test(name);
}

const shapeSchema = z.strictObject({
  vocab_size: positive,
  hidden_size: positive,
  intermediate_size: positive,
  layers: positive.max(99_999),
  heads: positive,
  key_value_heads: positive,
  head_dim: positive,
  experts: positive,
  experts_per_token: positive,
  normalize_top_k: z.boolean(),
  rms_norm_epsilon: z.number().positive(),
  rope_theta: z.number().positive(),
  sliding_window: bytes,
  max_positions: positive,
});

/** Codecs of exponents. */
export const codecSchema = z.enum(PACK_CODECS);
export const codecLevelSchema = z.int().nullable();

const chunkCodecSchema = z.enum([...PACK_CODECS, 'packed3']) satisfies z.ZodType<ChunkCodec>;

const chunkSchema = z.strictObject({
  plane: z.int().min(0).max(2),
  codec: chunkCodecSchema,
  offset_bytes: bytes,
  stored_bytes: positive,
  plain_bytes: positive,
  crc32c,
});

const dtype = z.enum(WEIGHT_DTYPES);

const expertTensorSchema = z.strictObject({
  name: z.string().min(1),
  dtype,
  rows: positive,
  columns: positive,
  split: z.enum(['bf16-e8-sm8', 'fp16-hi8-lo8', 'fp32-e8-sm8-r16', 'fp16-e5-lo8-s1m2']),
  source_crc32c: crc32c,
  chunks: z.array(chunkSchema).min(1),
});

const denseTensorSchema = z.strictObject({
  name: z.string().min(1),
  role: z.enum([
    'embedding',
    'finalNorm',
    'lmHead',
    'attentionNorm',
    'query',
    'key',
    'value',
    'attentionOutput',
    'expertNorm',
    'gate',
  ]),
  layer: bytes,
  dtype,
  rows: positive,
  columns: positive,
  offset_bytes: bytes,
  stored_bytes: positive,
  crc32c,
});

const expertSchema = z.strictObject({
  layer: bytes,
  expert: bytes,
  file: fileName,
  gate: expertTensorSchema,
  up: expertTensorSchema,
  down: expertTensorSchema,
});

const fileSchema = z.strictObject({ name: fileName, size_bytes: bytes, sha256 });

export const manifestSchema = z.strictObject({
  format: z.literal(PACK_FORMAT),
  format_version: z.literal(PACK_FORMAT_VERSION),
  odmoe_version: z.string(),
  model: z.strictObject({
    name: z.string().refine(isModelName, `expected 1 to ${MODEL_NAME_LIMIT} printable characters`),
    family: z.string().min(1),
    shape: shapeSchema,
    tied_embeddings: z.boolean(),
    eos_token_ids: z.array(bytes),
    shipped_format: z.enum(['bf16', 'fp16', 'fp32']),
  }),
  source: z.strictObject({ fingerprint: sha256 }),
  codec: codecSchema,
  codec_level: codecLevelSchema,
  shards: positive.max(SHARDS_LIMIT),
  files: z.array(fileSchema),
  dense: z.array(denseTensorSchema),
  experts: z.array(expertSchema),
});

/** Decides, before anything else is looked at, whether the file is a manifest of a version that can be read. */
export const manifestHeadSchema = z.looseObject({ format: z.unknown(), format_version: z.unknown() });

export type Manifest = z.infer<typeof manifestSchema>;
export type ManifestShape = z.infer<typeof shapeSchema>;
export type ManifestChunk = z.infer<typeof chunkSchema>;
export type ManifestExpertTensor = z.infer<typeof expertTensorSchema>;
export type ManifestDenseTensor = z.infer<typeof denseTensorSchema>;
export type ManifestExpert = z.infer<typeof expertSchema>;
export type ManifestFile = z.infer<typeof fileSchema>;

/** Schemas of what a packing journal records for a finished file. */
export const finishedFileSchema = z.strictObject({
  file: fileSchema,
  dense: z.array(denseTensorSchema),
  experts: z.array(expertSchema),
});
export type FinishedFile = z.infer<typeof finishedFileSchema>;

export function shapeToManifest(shape: ModelShape): ManifestShape {
  return {
    vocab_size: shape.vocabSize,
    hidden_size: shape.hiddenSize,
    intermediate_size: shape.intermediateSize,
    layers: shape.layers,
    heads: shape.heads,
    key_value_heads: shape.keyValueHeads,
    head_dim: shape.headDim,
    experts: shape.experts,
    experts_per_token: shape.expertsPerToken,
    normalize_top_k: shape.normalizeTopK,
    rms_norm_epsilon: shape.rmsNormEpsilon,
    rope_theta: shape.ropeTheta,
    sliding_window: shape.slidingWindow,
    max_positions: shape.maxPositions,
  };
}

export function shapeFromManifest(shape: ManifestShape): ModelShape {
  return {
    vocabSize: shape.vocab_size,
    hiddenSize: shape.hidden_size,
    intermediateSize: shape.intermediate_size,
    layers: shape.layers,
    heads: shape.heads,
    keyValueHeads: shape.key_value_heads,
    headDim: shape.head_dim,
    experts: shape.experts,
    expertsPerToken: shape.experts_per_token,
    normalizeTopK: shape.normalize_top_k,
    rmsNormEpsilon: shape.rms_norm_epsilon,
    ropeTheta: shape.rope_theta,
    slidingWindow: shape.sliding_window,
    maxPositions: shape.max_positions,
  };
}

/** The one serialization, so that equal manifests are equal bytes (the pack digest is theirs). */
export function serializeManifest(manifest: Manifest): string {
  return `${JSON.stringify(manifest)}\n`;
}
