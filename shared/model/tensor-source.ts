/** Where weights lie and what they are for: the vocabulary that checkpoints, packs and the native addon share. */

/** Mixtral-family decoder. All sizes in elements. */
export interface ModelShape {
  vocabSize: number;
  hiddenSize: number;
  intermediateSize: number;
  layers: number;
  heads: number;
  keyValueHeads: number;
  headDim: number;
  experts: number;
  expertsPerToken: number;
  normalizeTopK: boolean;
  rmsNormEpsilon: number;
  ropeTheta: number;
  /** 0: none. */
  slidingWindow: number;
  maxPositions: number;
}

/**
 * Forms in which a device keeps weights. `fixed4` holds BF16 values exactly in about 0.77 of their size: exponents as codes of 4 bits
 * (docs/architecture.md); a matrix that it cannot hold is kept in its exact form instead.
 */
export type WeightFormat = 'bf16' | 'fp16' | 'fp32' | 'int8' | 'nf4' | 'fixed4';

/** How values are cut into byte planes (docs/pack-format.md); `none-*`: plain row-major values in plane 0. */
export type Split =
  'none-bf16' | 'none-fp16' | 'none-fp32' | 'bf16-e8-sm8' | 'fp16-hi8-lo8' | 'fp32-e8-sm8-r16' | 'fp16-e5-lo8-s1m2';

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

/** A tensor outside the device: rows x columns values, row-major within each plane. A vector has rows = 1. */
export interface TensorSource {
  rows: number;
  columns: number;
  split: Split;
  chunks: ChunkLocation[];
}

export type DenseRole =
  | 'embedding'
  | 'finalNorm'
  | 'lmHead'
  | 'attentionNorm'
  | 'query'
  | 'key'
  | 'value'
  | 'attentionOutput'
  | 'expertNorm'
  | 'gate';

/** The three matrices of a SwiGLU expert: down(silu(gate x) * (up x)). */
export interface ExpertSource {
  gate: TensorSource;
  up: TensorSource;
  down: TensorSource;
}

/** One model on disk, a Hugging Face checkpoint or a pack of one. */
export interface ModelSource {
  readonly kind: 'checkpoint' | 'pack';
  readonly directory: string;
  /** For people and for the handshake: the directory's or the pack's recorded name. */
  readonly name: string;
  readonly shape: ModelShape;
  /** Format that keeps the shipped values exactly: 'bf16', 'fp16' or 'fp32'. */
  readonly shippedFormat: 'bf16' | 'fp16' | 'fp32';
  /** From config.json and generation_config.json; any of them ends an answer. */
  readonly eosTokenIds: readonly number[];
  /** SHA-256 of the pack's manifest, hexadecimal; null for a checkpoint. */
  readonly packDigest: string | null;
  /** LM head shares the embedding: there is no lmHead tensor. */
  readonly tiedEmbeddings: boolean;
  dense(role: DenseRole, layer: number): TensorSource;
  expert(layer: number, expert: number): ExpertSource;
}
