/**
 * Locations and tensor roles of weights: the types that checkpoints, packs and the native addon share. The lists of names are in the order of C++'s
 * enumerations (native/include/odmoe/formats.h); a test compares them.
 */
import { BLOCK_FORMATS, type BlockFormat } from './block-formats.js';
import type { DenseRole } from './dense-roles.js';
import type { ModelShape } from './model-shape.js';

/**
 * Formats of weights on a device. `fixed4` holds BF16 values exactly in about 0.77 of their size: exponents become codes of 4 bits
 * (docs/architecture.md). A matrix that fixed4 cannot hold stays in its exact format instead. `mxfp4` and `fp8` hold values of models that are
 * shipped in these formats: codes of 4 bits with a power of two for every 32 columns; E4M3 with an FP32 scale for every 128 columns of a row.
 * `slicedHL` holds codes of H bits whose upper L bits are usable by themselves (SliceMoE, section 4.2). The others are block formats. `shipped`, for
 * loading: each matrix in the format that holds its values as they are shipped.
 */
export const WEIGHT_FORMATS = [
  'bf16',
  'fp16',
  'fp32',
  'int8',
  'nf4',
  'fixed4',
  'mxfp4',
  'fp8',
  'sliced84',
  'sliced63',
  'sliced42',
  ...BLOCK_FORMATS,
  'shipped',
] as const;
/** Grouped codes with their parameters stand for the two of the list without. */
export type WeightFormat = Exclude<(typeof WEIGHT_FORMATS)[number], 'grouped4' | 'grouped8'> | BlockFormat;

/** Formats that store the values exactly as they are shipped. */
export type ExactFormat = Extract<WeightFormat, 'bf16' | 'fp16' | 'fp32' | 'mxfp4' | 'fp8' | BlockFormat>;

/** `mixed`: matrices have several. */
export type ShippedFormat = ExactFormat | 'mixed';

/**
 * The way in which values are cut into byte planes (docs/pack-format.md). `none-*`: plain row-major values in plane 0. Quantized values have
 * their codes in plane 0 and their scales in plane 1. Bytes of each row: mxfp4 columns / 2 (the lower column in the low half) and columns / 32
 * (E8M0); fp8 `columns` (E4M3) and an FP32 for every 128 columns. Sliced values have their upper slice in plane 0 and the lower one in plane 1
 * (native/include/odmoe/slices.h).
 */
export const SPLITS = [
  'none-bf16',
  'none-fp16',
  'none-fp32',
  'bf16-e8-sm8',
  'fp16-hi8-lo8',
  'fp32-e8-sm8-r16',
  'fp16-e5-lo8-s1m2',
  'mxfp4',
  'fp8',
  'sliced84',
  'sliced63',
  'sliced42',
  ...BLOCK_FORMATS,
] as const;
export type Split = Exclude<(typeof SPLITS)[number], 'grouped4' | 'grouped8'> | BlockFormat;

/** Splits of experts that are cut into an upper and a lower slice: bits of a code, and those of its upper slice. */
export type SlicedSplit = Extract<Split, `sliced${number}`>;

/** How a product reads sliced weights: both slices, or the upper one alone by one of two rules (native/include/odmoe/slices.h). */
export const SLICE_READINGS = ['both', 'upperCentred', 'upperAmat'] as const;
export type SliceReading = (typeof SLICE_READINGS)[number];

/** Codec of a chunk's stored bytes (docs/pack-format.md, "Codecs"). */
export const CHUNK_CODECS = ['raw', 'zstd', 'lz4hc', 'fixed4', 'huffman', 'packed3', 'e4m3'] as const;
export type ChunkCodec = (typeof CHUNK_CODECS)[number];

/** Location of some bytes of one plane. The chunks of a plane follow one another in the plane. */
export interface ChunkLocation {
  plane: number;
  path: string;
  offsetBytes: number;
  storedBytes: number;
  plainBytes: number;
  codec: ChunkCodec;
  /** CRC-32C of the stored bytes, checked at each read; null: not checked. */
  crc32c: number | null;
}

/** Forms in which files of other programs hold a matrix (native/include/odmoe/store.h has the same, with the roles of the planes). */
export const STORED_FORMS = [
  'nvfp4',
  'fp8-bf16',
  'fp8-fp16',
  'fp8-e8m0',
  'int8',
  'pack-quantized',
  'gptq',
  'gptq-v1',
  'awq',
] as const;

/**
 * A matrix that is stored in another way than in the planes of a split. Reading moves its bits into those planes and changes no code. The chunks'
 * planes: 0 codes, 1 scales, 2 zero points or NVFP4's scales of matrices, 3 the group of each column (g_idx), which may be absent. GGUF's blocks
 * are in plane 0; the scales of NVFP4 matrices, if there are any, in plane 1. Their splits are mxfp4 and nvfp4-multiplied.
 */
export type StoredForm =
  | 'gguf-mxfp4'
  | 'gguf-nvfp4'
  | { form: (typeof STORED_FORMS)[number]; split: 'fp8' | BlockFormat };

/**
 * A tensor as a view of a stored matrix of a checkpoint. A stored tensor of more than two dimensions counts as a matrix; its last dimension
 * gives the columns. Block b has the stored rows [firstRow + b * stepRows, + blockRows) and of these the columns firstColumn, firstColumn +
 * stepColumns and so on. The blocks stand one below another; `transposed`: each block is transposed first.
 */
export interface TensorView {
  /** Size of the matrix in the chunks. */
  storedRows: number;
  storedColumns: number;
  /**
   * Split of the stored matrix, or its form. If the split differs from the tensor's, the values are converted to FP32 (fp8: value times scale,
   * rounded once), and the tensor is none-fp32.
   */
  storedSplit: Split | StoredForm;
  /** Stored rows for which one row of scales of FP8 or INT8 stands. */
  scaleBlockRows: number;
  firstRow: number;
  blockRows: number;
  stepRows: number;
  firstColumn: number;
  stepColumns: number;
  transposed: boolean;
  /** Each value becomes fp32(fp32(value * multiply) + add), for zero-centred norms. They are 1 and 0 for every tensor that is not none-fp32. */
  multiply: number;
  add: number;
}

/** False for another form. */
export function isSplit(stored: Split | StoredForm): stored is Split {
  return typeof stored === 'string' && stored !== 'gguf-mxfp4' && stored !== 'gguf-nvfp4';
}

/** The split in whose planes a stored matrix is read. */
export function splitRead(stored: Split | StoredForm): Split {
  if (typeof stored !== 'string') return stored.split;
  if (stored === 'gguf-mxfp4') return 'mxfp4';
  return stored === 'gguf-nvfp4' ? 'nvfp4-multiplied' : stored;
}

/** A tensor outside the device: rows x columns values, row-major within each plane. A vector has one row. */
export interface TensorSource {
  rows: number;
  columns: number;
  split: Split;
  chunks: ChunkLocation[];
  /** null: the chunks hold the tensor itself. */
  view: TensorView | null;
}

/** One of the three matrices of an expert. */
export const EXPERT_MATRICES = ['gate', 'up', 'down'] as const;
export type ExpertMatrix = (typeof EXPERT_MATRICES)[number];

/** The three matrices of a GLU expert, and its biases as FP32: intermediateSize for gate, as many for up, hiddenSize for down. */
export interface ExpertSource {
  gate: TensorSource;
  up: TensorSource;
  down: TensorSource;
  /** null: the model's experts have no biases. */
  biases: Float32Array | null;
  /** The limit of the expert's GLU, where its layer has one of its own (LayerShape.expertLimit). Absent: that of ModelShape.expert. */
  gluLimit?: number | undefined;
}

/** One model on disk, a Hugging Face checkpoint or a pack of one. */
export interface ModelSource {
  readonly kind: 'checkpoint' | 'pack';
  readonly directory: string;
  /** Name for people and for the handshake: that of the directory, or the one recorded in the pack. */
  readonly name: string;
  readonly shape: ModelShape;
  /** Format in which the experts' matrices are shipped. */
  readonly shippedFormat: ShippedFormat;
  /** Tokens from config.json and generation_config.json; any of them ends an answer. */
  readonly eosTokenIds: readonly number[];
  /** SHA-256 of the pack's manifest, hexadecimal; null for a checkpoint. */
  readonly packDigest: string | null;
  /** The LM head shares the embedding: there is no lmHead tensor. */
  readonly tiedEmbeddings: boolean;
  /**
   * Small files of the Hugging Face checkpoint (config.json, tokenizer.json and others), by name, that are made from the model's own file (GGUF).
   * Absent or null: they lie in the directory.
   */
  readonly madeFiles?: ReadonlyMap<string, Uint8Array> | null;
  /** A head that drafts tokens for the model; null or absent: none. */
  readonly draftHead?: DraftHeadSource | null;
  /** `layer` counts all layers. */
  dense(role: DenseRole, layer: number): TensorSource;
  /** Name of the stored tensor, for messages. Absent or null: it is not known. */
  denseName?(role: DenseRole, layer: number): string | null;
  /** `layer` counts expert layers. */
  expert(layer: number, expert: number): ExpertSource;
}

/** A head that drafts tokens, as a model of one layer (ModelShape.draftHead). */
export interface DraftHeadSource extends ModelSource {
  /** Roles of tensors that it does not have itself: `dense` gives those of the model for which it drafts. */
  readonly sharedRoles: ReadonlySet<DenseRole>;
}

/** The model's tensor for a role that its head shares. */
export function sharedTensor(
  { dense, tiedEmbeddings }: Pick<ModelSource, 'dense' | 'tiedEmbeddings'>,
  role: DenseRole,
): TensorSource {
  return dense(role === 'lmHead' && tiedEmbeddings ? 'embedding' : role, 0);
}
