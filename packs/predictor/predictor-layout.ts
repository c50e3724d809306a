/** The header of predictor.safetensors, which the metadata alone determine: a header that is another one is damaged. Pure. */
import { z } from 'zod';
import { existingDistances, type ExpertMapsShape, type LayerMaps } from '../../shared/model/expert-maps.js';
import { HEADER_LENGTH_BYTES } from '../checkpoint/safetensors-header.js';
import { sha256Schema } from '../format/manifest.js';

export const PREDICTOR_FORMAT = 'odmoe-predictor';
export const PREDICTOR_FORMAT_VERSION = 1;

/** Most rows of a hidden layer, and most layers ahead. A file with more is refused before memory is taken for it. */
export const UNITS_LIMIT = 4096;
const DISTANCES_LIMIT = 16;
/** The farthest layer ahead that native code takes. */
const DISTANCE_LIMIT = 65_536;
const TEXT_LIMIT = 1000;
/** The data begin at a multiple of it, so that FP32 values are aligned. */
const ALIGNMENT_BYTES = 8;
const NO_DIGEST = '0'.repeat(64);

const size = z.int().min(1);

/** In the file: JSON texts in the metadata, whose values must be strings. */
const shapeSchema = z.strictObject({
  hidden_size: size,
  experts: size,
  units: size.max(UNITS_LIMIT),
  layers: size,
  distances: z.array(z.int().min(0).max(DISTANCE_LIMIT)).min(1).max(DISTANCES_LIMIT),
});

const recallSchema = z.array(
  z.strictObject({ layer: z.int().min(0), distance: z.int().min(0), recall: z.number().min(0).max(1) }),
);

/** Checked first: it decides whether the file is one of a version that can be read. */
export const metadataHeadSchema = z.looseObject({ format: z.unknown(), format_version: z.unknown() });

/** Text of JSON that is written as JSON.stringify writes it. */
function jsonText<Schema extends z.ZodType>(schema: Schema): z.ZodPreprocess<Schema> {
  return z.preprocess((value, context) => {
    try {
      return typeof value === 'string' ? (JSON.parse(value) as unknown) : value;
    } catch {
      context.addIssue('is not JSON');
      return z.NEVER;
    }
  }, schema);
}

/** A whole number as a string. */
const wholeText = z.preprocess((value) => (typeof value === 'string' ? Number(value) : value), z.int().min(0));

export const metadataSchema = z.strictObject({
  format: z.literal(PREDICTOR_FORMAT),
  format_version: z.literal(String(PREDICTOR_FORMAT_VERSION)),
  odmoe_version: z.string(),
  source_fingerprint: sha256Schema,
  shape: jsonText(shapeSchema),
  tokens: wholeText,
  seed: wholeText,
  text: z.string().max(TEXT_LIMIT),
  recall: jsonText(recallSchema),
  /** SHA-256 of the whole file with zeros in place of this value. */
  sha256: sha256Schema,
});

export type PredictorMetadata = z.infer<typeof metadataSchema>;

export function shapeOfMetadata({ shape }: PredictorMetadata): ExpertMapsShape {
  const { hidden_size: hiddenSize, experts, units, layers, distances } = shape;
  return { hiddenSize, experts, units, layers, distances };
}

export function metadataShape(shape: ExpertMapsShape): PredictorMetadata['shape'] {
  const { hiddenSize, experts, units, layers, distances } = shape;
  return { hidden_size: hiddenSize, experts, units, layers, distances: [...distances] };
}

/** A tensor of the file; `part` names the field of LayerMaps. */
export interface PredictorTensor {
  readonly layer: number;
  readonly part: keyof LayerMaps;
  readonly dtype: 'F32' | 'I8';
  readonly shape: readonly number[];
  readonly sizeBytes: number;
}

const PART_NAMES: Readonly<Record<keyof LayerMaps, string>> = {
  units: 'units',
  unitScales: 'unit_scales',
  heads: 'heads',
  headScales: 'head_scales',
  biases: 'biases',
};

/** The tensors in the order of the file: all FP32 values come first, so that they are aligned without holes. */
export function predictorTensors(shape: ExpertMapsShape): PredictorTensor[] {
  const { hiddenSize, experts, units, layers } = shape;
  const ofType = (dtype: PredictorTensor['dtype']): PredictorTensor[] =>
    Array.from({ length: layers }, (_, layer) => {
      const ahead = existingDistances(shape, layer).length;
      const parts: readonly (readonly [keyof LayerMaps, readonly number[]])[] =
        dtype === 'F32'
          ? [
              ['unitScales', [units]],
              ['headScales', [ahead, experts]],
              ['biases', [ahead, experts]],
            ]
          : [
              ['units', [units, hiddenSize]],
              ['heads', [ahead, experts, units]],
            ];
      return parts.map(([part, sizes]) => {
        const values = sizes.reduce((product, some) => product * some, 1);
        return { layer, part, dtype, shape: sizes, sizeBytes: dtype === 'F32' ? 4 * values : values };
      });
    }).flat();
  return [...ofType('F32'), ...ofType('I8')];
}

/** Bytes of the values of some layers; each layer is counted as if it had a layer ahead at every distance. */
export function mostPredictorBytes({ hiddenSize, experts, units, layers, distances }: ExpertMapsShape): number {
  const ofDistance = experts * (units + 8);
  return layers * (units * (hiddenSize + 4) + distances.length * ofDistance);
}

/** Length field and header of the file, padded with spaces. */
export function predictorHeader(metadata: PredictorMetadata, sha256: string = metadata.sha256): Buffer {
  const entries: Record<string, unknown> = {
    __metadata__: {
      format: metadata.format,
      format_version: metadata.format_version,
      odmoe_version: metadata.odmoe_version,
      source_fingerprint: metadata.source_fingerprint,
      shape: JSON.stringify(metadata.shape),
      tokens: String(metadata.tokens),
      seed: String(metadata.seed),
      text: metadata.text,
      recall: JSON.stringify(metadata.recall),
      sha256,
    },
  };
  let end = 0;
  for (const { layer, part, dtype, shape, sizeBytes } of predictorTensors(shapeOfMetadata(metadata))) {
    entries[`layers.${layer}.${PART_NAMES[part]}`] = { dtype, shape, data_offsets: [end, end + sizeBytes] };
    end += sizeBytes;
  }
  const json = Buffer.from(JSON.stringify(entries));
  const padded = Math.ceil((HEADER_LENGTH_BYTES + json.length) / ALIGNMENT_BYTES) * ALIGNMENT_BYTES;
  const header = Buffer.alloc(padded, ' ');
  header.writeBigUInt64LE(BigInt(padded - HEADER_LENGTH_BYTES), 0);
  json.copy(header, HEADER_LENGTH_BYTES);
  return header;
}

/** The header over which the checksum is computed. */
export function headerWithoutDigest(metadata: PredictorMetadata): Buffer {
  return predictorHeader(metadata, NO_DIGEST);
}
