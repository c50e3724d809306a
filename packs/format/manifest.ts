import { z } from 'zod';
import { camelCaseKeys, snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { DENSE_ROLES, type DensePlace, type DenseRole } from '../../shared/model/dense-roles.js';
import { modelShapeSchema } from '../../shared/model/model-shape.js';
import { isBlockFormat, type BlockFormat } from '../../shared/model/block-formats.js';
import { type ExpertMatrix, CHUNK_CODECS } from '../../shared/model/tensor-source.js';
import { PACK_CODECS } from './pack-codec.js';
import { isPackFileName, PACK_FORMAT, PACK_FORMAT_VERSION, SHARDS_LIMIT } from './pack-layout.js';

/** manifest.json, format version 3 (docs/pack-format.md). */

export const bytesSchema = z.int().min(0);
export const positiveSchema = z.int().min(1);
export const sha256Schema = z.string().regex(/^[0-9a-f]{64}$/, 'expected 64 lower-case hexadecimal digits');
export const crc32cSchema = z.int().min(0).max(0xffffffff);
const fileName = z.string().refine(isPackFileName, 'expected the name of a file of a pack');

/** Longest name of a model. It must fit into a DNS record of at most 255 bytes. */
export const MODEL_NAME_LIMIT = 100;

export function isModelName(name: string): boolean {
  return name.length >= 1 && name.length <= MODEL_NAME_LIMIT && !/\p{Control}/u.test(name);
}

/** The whole description of the model, with keys in snake case. */
const shapeSchema = z.preprocess(camelCaseKeys, modelShapeSchema);

/** Codecs of exponents. */
export const codecSchema = z.enum(PACK_CODECS);
export const codecLevelSchema = z.int().nullable();

/** The name of a block format, which is a split, too. */
export const blockFormatSchema = z.custom<BlockFormat>(
  (name) => typeof name === 'string' && isBlockFormat(name),
  'expected the name of a format of weights',
);

const shippedFormatSchema = z.union([z.enum(['bf16', 'fp16', 'fp32', 'mxfp4', 'fp8', 'mixed']), blockFormatSchema]);

const chunkCodecSchema = z.enum(CHUNK_CODECS);

const chunkSchema = z.strictObject({
  plane: z.int().min(0).max(2),
  codec: chunkCodecSchema,
  offset_bytes: bytesSchema,
  stored_bytes: positiveSchema,
  plain_bytes: positiveSchema,
  crc32c: crc32cSchema,
});

const expertTensorSchema = z.strictObject({
  rows: positiveSchema,
  columns: positiveSchema,
  split: z.union([
    z.enum(['bf16-e8-sm8', 'fp16-hi8-lo8', 'fp32-e8-sm8-r16', 'fp16-e5-lo8-s1m2', 'mxfp4', 'fp8']),
    blockFormatSchema,
  ]),
  source_crc32c: crc32cSchema,
  chunks: z.array(chunkSchema).min(1),
});

export const extentSchema = z.strictObject({
  offset_bytes: bytesSchema,
  stored_bytes: positiveSchema,
  crc32c: crc32cSchema,
});

const denseTensorSchema = z.strictObject({
  role: z.enum(Object.keys(DENSE_ROLES) as [DenseRole, ...DenseRole[]]),
  layer: bytesSchema,
  split: z.union([z.enum(['none-bf16', 'none-fp16', 'none-fp32', 'mxfp4', 'fp8']), blockFormatSchema]),
  rows: positiveSchema,
  columns: positiveSchema,
  /** One entry for each plane: values, or codes and then scales. */
  planes: z.array(extentSchema).min(1).max(2),
});

const expertSchema = z.strictObject({
  layer: bytesSchema,
  expert: bytesSchema,
  file: fileName,
  gate: expertTensorSchema,
  up: expertTensorSchema,
  down: expertTensorSchema,
  /** FP32 biases of gate, up and down, one after another. */
  biases: extentSchema.nullable(),
});

/** Tensors of the checkpoint that the model does not need; `*` stands for the numbers in their names. */
const leftOutSchema = z.strictObject({ name: z.string().min(1), tensors: positiveSchema, size_bytes: bytesSchema });

/** A head that drafts, as a model of one layer. Absent: the pack has none. */
const draftHeadSchema = z.strictObject({
  shape: shapeSchema,
  shipped_format: shippedFormatSchema,
  /** Roles of tensors that it shares with the model. */
  shared: z.array(z.enum(['embedding', 'lmHead'])),
  dense: z.array(denseTensorSchema),
  experts: z.array(expertSchema),
});

const fileSchema = z.strictObject({ name: fileName, size_bytes: bytesSchema, sha256: sha256Schema });

export const manifestSchema = z.strictObject({
  format: z.literal(PACK_FORMAT),
  format_version: z.literal(PACK_FORMAT_VERSION),
  odmoe_version: z.string(),
  model: z.strictObject({
    name: z.string().refine(isModelName, `expected 1 to ${MODEL_NAME_LIMIT} printable characters`),
    family: z.string().min(1),
    shape: shapeSchema,
    tied_embeddings: z.boolean(),
    eos_token_ids: z.array(bytesSchema),
    shipped_format: shippedFormatSchema,
  }),
  source: z.strictObject({ fingerprint: sha256Schema, left_out: z.array(leftOutSchema) }),
  codec: codecSchema,
  codec_level: codecLevelSchema,
  shards: positiveSchema.max(SHARDS_LIMIT),
  files: z.array(fileSchema),
  dense: z.array(denseTensorSchema),
  experts: z.array(expertSchema),
  draft_head: draftHeadSchema.optional(),
});

/** Checked first: it decides whether the file is a manifest of a version that can be read. */
export const manifestHeadSchema = z.looseObject({ format: z.unknown(), format_version: z.unknown() });

export type Manifest = z.infer<typeof manifestSchema>;
export type ManifestChunk = z.infer<typeof chunkSchema>;
export type ManifestExpertTensor = z.infer<typeof expertTensorSchema>;
export type ManifestDenseTensor = z.infer<typeof denseTensorSchema>;
export type ManifestExtent = z.infer<typeof extentSchema>;
export type ManifestExpert = z.infer<typeof expertSchema>;
export type ManifestDraftHead = z.infer<typeof draftHeadSchema>;
export type ManifestFile = z.infer<typeof fileSchema>;

/** True if a pack has its experts in slices only (slices.json), without their lossless parts. */
export function isSlicesOnly({ experts }: Manifest): boolean {
  return experts.length === 0;
}

/** Schemas of the records of finished files in a packing journal. */
export const finishedFileSchema = z.strictObject({
  file: fileSchema,
  dense: z.array(denseTensorSchema),
  experts: z.array(expertSchema),
});
export type FinishedFile = z.infer<typeof finishedFileSchema>;

/** Name of a dense tensor in dense.safetensors, or of an expert's matrix in the fingerprint. */
export function tensorName(
  place: DensePlace | { layer: number; expert: number; part: ExpertMatrix | 'biases' },
): string {
  if ('part' in place) return `experts.${place.layer}.${place.expert}.${place.part}`;
  return DENSE_ROLES[place.role].startsWith('layer') ? `layers.${place.layer}.${place.role}` : place.role;
}

/** The only serialization, so that equal manifests have equal bytes. The pack digest is computed from them. */
export function serializeManifest(manifest: Manifest): string {
  const { model, draft_head: head } = manifest;
  // Parsing puts the keys of a shape in their fixed order.
  const shape = snakeCaseKeys(modelShapeSchema.parse(model.shape));
  const draft = head && { ...head, shape: snakeCaseKeys(modelShapeSchema.parse(head.shape)) };
  return `${JSON.stringify({ ...manifest, model: { ...model, shape }, draft_head: draft })}\n`;
}
