/** A GGUF file or the parts of a split one, as data. The reader makes it; the architectures and the tokenizer read it. */

/** A value of a key. Integers of 64 bits that a double holds exactly are numbers; a file with others is refused. Arrays hold no arrays. */
export type GgufScalar = number | boolean | string;
export type GgufValue = GgufScalar | readonly GgufScalar[];
export type GgufKeys = ReadonlyMap<string, GgufValue>;

/** Types of tensors that are read, by their number in the file, with their name in llama.cpp. Sizes: block columns and bytes of a block. */
export const GGUF_TYPES = {
  F32: { number: 0, columns: 1, bytes: 4 },
  F16: { number: 1, columns: 1, bytes: 2 },
  Q4_0: { number: 2, columns: 32, bytes: 18 },
  Q4_1: { number: 3, columns: 32, bytes: 20 },
  Q5_0: { number: 6, columns: 32, bytes: 22 },
  Q5_1: { number: 7, columns: 32, bytes: 24 },
  Q8_0: { number: 8, columns: 32, bytes: 34 },
  Q2_K: { number: 10, columns: 256, bytes: 84 },
  Q3_K: { number: 11, columns: 256, bytes: 110 },
  Q4_K: { number: 12, columns: 256, bytes: 144 },
  Q5_K: { number: 13, columns: 256, bytes: 176 },
  Q6_K: { number: 14, columns: 256, bytes: 210 },
  IQ4_NL: { number: 20, columns: 32, bytes: 18 },
  IQ4_XS: { number: 23, columns: 256, bytes: 136 },
  BF16: { number: 30, columns: 1, bytes: 2 },
  MXFP4: { number: 39, columns: 32, bytes: 17 },
  NVFP4: { number: 40, columns: 64, bytes: 36 },
} as const;
export type GgufType = keyof typeof GGUF_TYPES;

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

/** A model as its files say it; no tensor data has been read. */
export interface GgufModel {
  /** Path of the first file. */
  path: string;
  parts: readonly GgufPart[];
  keys: GgufKeys;
  tensors: ReadonlyMap<string, GgufTensor>;
}
