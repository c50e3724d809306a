/** A GGUF file or the parts of a split one, as data. The reader makes it; the architectures and the tokenizer read it. */

import { GGUF_BLOCKS } from '../../shared/model/block-formats.js';

/** A value of a key. Integers of 64 bits that a double holds exactly are numbers; a file with others is refused. Arrays hold no arrays. */
export type GgufScalar = number | boolean | string;
export type GgufValue = GgufScalar | readonly GgufScalar[];
export type GgufKeys = ReadonlyMap<string, GgufValue>;

/** Types of tensors that are read, by their number in the file, with their name in llama.cpp. Sizes: block columns and bytes of a block. */
export const GGUF_TYPES = {
  F32: { number: 0, columns: 1, bytes: 4 },
  F16: { number: 1, columns: 1, bytes: 2 },
  Q4_0: { number: 2, ...GGUF_BLOCKS.q4_0 },
  Q4_1: { number: 3, ...GGUF_BLOCKS.q4_1 },
  Q5_0: { number: 6, ...GGUF_BLOCKS.q5_0 },
  Q5_1: { number: 7, ...GGUF_BLOCKS.q5_1 },
  Q8_0: { number: 8, ...GGUF_BLOCKS.q8_0 },
  Q2_K: { number: 10, ...GGUF_BLOCKS.q2_k },
  Q3_K: { number: 11, ...GGUF_BLOCKS.q3_k },
  Q4_K: { number: 12, ...GGUF_BLOCKS.q4_k },
  Q5_K: { number: 13, ...GGUF_BLOCKS.q5_k },
  Q6_K: { number: 14, ...GGUF_BLOCKS.q6_k },
  IQ4_NL: { number: 20, ...GGUF_BLOCKS.iq4_nl },
  IQ4_XS: { number: 23, ...GGUF_BLOCKS.iq4_xs },
  BF16: { number: 30, columns: 1, bytes: 2 },
  MXFP4: { number: 39, columns: 32, bytes: 17 },
  NVFP4: { number: 40, columns: 64, bytes: 36 },
} as const;
export type GgufType = keyof typeof GGUF_TYPES;

/** The tensor with the factors by which the angles of a head's pairs are divided. */
export const ROPE_FACTORS_TENSOR = 'rope_freqs.weight';

/** A tensor of a file. */
export interface GgufTensor {
  name: string;
  type: GgufType;
  /** Outermost first, as other checkpoints say them: [experts, outputs, inputs]. The file has them in the other order. */
  dimensions: readonly number[];
  path: string;
  /** From the start of the file. */
  offsetBytes: number;
  sizeBytes: number;
}

/** One file on the disk: all of a model, or a part of one. */
export interface GgufPart {
  path: string;
  sizeBytes: number;
  modifiedMs: number;
  /** SHA-256 of the bytes before the tensors' data, hexadecimal. */
  headerDigest: string;
}

/** A model as its files say it; of the tensors' data, only the rope's factors have been read. */
export interface GgufModel {
  /** Path of the first file. */
  path: string;
  parts: readonly GgufPart[];
  keys: GgufKeys;
  tensors: ReadonlyMap<string, GgufTensor>;
  /** Values of the tensor of that name (`rope_freqs.weight`), [pairs of a head]; left out if there is none in FP32. */
  ropeFactors?: readonly number[];
}
