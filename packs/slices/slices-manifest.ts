import { z } from 'zod';
import type { MeasuredTheta } from '../../shared/decisions/slices/plan-readings.js';
import {
  blockFormatSchema,
  bytesSchema,
  crc32cSchema,
  extentSchema,
  positiveSchema,
  sha256Schema,
} from '../format/manifest.js';
import { type Slice, SLICE_FILE_PATTERN, SLICES } from '../format/pack-layout.js';
import { SLICED_SPLITS } from './slice-pair.js';

/** slices.json, format version 1 (docs/pack-format.md, "Slices"). */

export const SLICES_FORMAT = 'odmoe-slices';
export const SLICES_FORMAT_VERSION = 1;

const slicedMatrixSchema = z.strictObject({
  rows: positiveSchema,
  columns: positiveSchema,
  /** Format and checksum of the values that were sliced, as the manifest of a lossless pack has them. */
  source_format: z.union([z.enum(['bf16', 'fp16', 'fp32', 'mxfp4', 'fp8']), blockFormatSchema]),
  source_crc32c: crc32cSchema,
  upper: extentSchema,
  lower: extentSchema,
});

const slicedExpertSchema = z.strictObject({
  layer: bytesSchema,
  expert: bytesSchema,
  gate: slicedMatrixSchema,
  up: slicedMatrixSchema,
  down: slicedMatrixSchema,
  /** In the file of upper slices: FP32 biases of gate, up and down, one after another. */
  biases: extentSchema.nullable(),
});

const sliceFileSchema = z.strictObject({
  name: z.string().regex(SLICE_FILE_PATTERN, 'expected the name of a file of slices'),
  size_bytes: bytesSchema,
  sha256: sha256Schema,
});

/** The threshold at which this share of executions is critical, as measured with this model. */
const criticalThresholdSchema = z.strictObject({
  critical: z.number().gt(0).lt(1),
  theta: z.number().min(0).max(1),
}) satisfies z.ZodType<MeasuredTheta>;

export const slicesManifestSchema = z.strictObject({
  format: z.literal(SLICES_FORMAT),
  format_version: z.literal(SLICES_FORMAT_VERSION),
  odmoe_version: z.string(),
  split: z.enum(SLICED_SPLITS),
  /** As in the manifest of the pack: slices of another model are refused. */
  source_fingerprint: sha256Schema,
  /** Null: not measured. */
  theta: z.array(criticalThresholdSchema).nullable(),
  files: z.array(sliceFileSchema),
  experts: z.array(slicedExpertSchema),
});

export type SlicesManifest = z.infer<typeof slicesManifestSchema>;
export type SlicedExpert = z.infer<typeof slicedExpertSchema>;
export type SlicedMatrix = z.infer<typeof slicedMatrixSchema>;
export type SliceFile = z.infer<typeof sliceFileSchema>;

/** A finished layer in the journal of slices in the making. `files`: in the order of SLICES. */
export const slicedLayerSchema = z.strictObject({
  layer: bytesSchema,
  files: z.tuple([sliceFileSchema, sliceFileSchema]),
  experts: z.array(slicedExpertSchema).min(1),
});
export type SlicedLayer = z.infer<typeof slicedLayerSchema>;

/** The only serialization, so that equal slices have equal bytes. */
export function serializeSlices(manifest: SlicesManifest): string {
  return `${JSON.stringify(slicesManifestSchema.parse(manifest))}\n`;
}

/** The files with one slice of every expert, by layer. */
export function filesOfSlice({ files }: Pick<SlicesManifest, 'files'>, slice: Slice): SliceFile[] {
  return files.filter((_, index) => SLICES[index % SLICES.length] === slice);
}

/** Bytes on the disk of all upper and of all lower slices. */
export function sliceFileBytes(manifest: SlicesManifest): { upperBytes: number; lowerBytes: number } {
  const sum = (slice: Slice): number =>
    filesOfSlice(manifest, slice).reduce((bytes, { size_bytes: size }) => bytes + size, 0);
  return { upperBytes: sum('upper'), lowerBytes: sum('lower') };
}
