/** Where weights lie and what they are for: the vocabulary that checkpoints, packs and the native addon share. */
import type { DenseRole } from './dense-roles.js';
import type { ModelShape } from './model-shape.js';

/**
 * Forms in which a device keeps weights. `fixed4` holds BF16 values exactly in about 0.77 of their size: exponents as codes of 4 bits
 * (docs/architecture.md); a matrix that it cannot hold is kept in its exact form instead. `mxfp4` and `fp8` hold values that are shipped
 * so: codes of 4 bits with a power of two for every 32 columns; E4M3 with an FP32 scale for every 128 columns of a row.
 */
export type WeightFormat = 'bf16' | 'fp16' | 'fp32' | 'int8' | 'nf4' | 'fixed4' | 'mxfp4' | 'fp8';

/** Those that keep values exactly as they are shipped. */
export type ExactFormat = Extract<WeightFormat, 'bf16' | 'fp16' | 'fp32' | 'mxfp4' | 'fp8'>;

/**
 * How values are cut into byte planes (docs/pack-format.md); `none-*`: plain row-major values in plane 0. Quantized ones have their codes
 * in plane 0 and their scales in plane 1, of each row: mxfp4 columns / 2 bytes (the lower column in the low half) and columns / 32 bytes
 * (E8M0), fp8 `columns` bytes (E4M3) and an FP32 for every 128 columns.
 */
export type Split =
  | 'none-bf16'
  | 'none-fp16'
  | 'none-fp32'
  | 'bf16-e8-sm8'
  | 'fp16-hi8-lo8'
  | 'fp32-e8-sm8-r16'
  | 'fp16-e5-lo8-s1m2'
  | 'mxfp4'
  | 'fp8';

/** How a chunk's bytes are stored (docs/pack-format.md, "Codecs"). */
export type ChunkCodec = 'raw' | 'zstd' | 'lz4hc' | 'fixed4' | 'huffman' | 'packed3';

/** Where a stretch of bytes of one plane lies. The chunks of a plane follow one another in the plane. */
export interface ChunkLocation {
  plane: number;
  path: string;
  offsetBytes: number;
  storedBytes: number;
  plainBytes: number;
  codec: ChunkCodec;
  /** CRC-32C of the stored bytes, checked on reading; null: not checked. */
  crc32c: number | null;
}

/**
 * A tensor as a view of a stored matrix (of a checkpoint; what has more than two dimensions counts as a matrix of its last one's
 * columns). Block b has the stored rows [firstRow + b * stepRows, + blockRows) and of these the columns firstColumn, firstColumn +
 * stepColumns and so on. The blocks stand one below another; `transposed`: each is transposed by itself first.
 */
export interface TensorView {
  /** The chunks hold this matrix. */
  storedRows: number;
  storedColumns: number;
  /** Another split than the tensor's: the values are made FP32 (fp8: value times scale, rounded once), and the tensor is none-fp32. */
  storedSplit: Split;
  /** Of fp8 scales: one row of them stands for so many stored rows. */
  scaleBlockRows: number;
  firstRow: number;
  blockRows: number;
  stepRows: number;
  firstColumn: number;
  stepColumns: number;
  transposed: boolean;
  /** Each value becomes fp32(fp32(value * multiply) + add): zero-centred norms. 1 and 0 for all that is not none-fp32. */
  multiply: number;
  add: number;
}

/** A tensor outside the device: rows x columns values, row-major within each plane. A vector has rows = 1. */
export interface TensorSource {
  rows: number;
  columns: number;
  split: Split;
  chunks: ChunkLocation[];
  /** null: the chunks hold the tensor itself. */
  view: TensorView | null;
}

/** The three matrices of a GLU expert, and its biases as FP32: intermediateSize for gate, as many for up, hiddenSize for down. */
export interface ExpertSource {
  gate: TensorSource;
  up: TensorSource;
  down: TensorSource;
  /** null: the model's experts have none. */
  biases: Float32Array | null;
}

/** One model on disk, a Hugging Face checkpoint or a pack of one. */
export interface ModelSource {
  readonly kind: 'checkpoint' | 'pack';
  readonly directory: string;
  /** For people and for the handshake: the directory's or the pack's recorded name. */
  readonly name: string;
  readonly shape: ModelShape;
  /** Format that keeps the experts' shipped values exactly. */
  readonly shippedFormat: ExactFormat;
  /** From config.json and generation_config.json; any of them ends an answer. */
  readonly eosTokenIds: readonly number[];
  /** SHA-256 of the pack's manifest, hexadecimal; null for a checkpoint. */
  readonly packDigest: string | null;
  /** LM head shares the embedding: there is no lmHead tensor. */
  readonly tiedEmbeddings: boolean;
  /** `layer` counts all layers. */
  dense(role: DenseRole, layer: number): TensorSource;
  /** `layer` counts expert layers. */
  expert(layer: number, expert: number): ExpertSource;
}
