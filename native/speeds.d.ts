/** What the addon measures of this machine (native/addon.d.ts). */

export interface CodecSpeed {
  /** Stored bytes (coded exponents, signs and mantissas as they are) over the bytes of the BF16 tensor. */
  ratio: number;
  /** Of BF16 taken or given; the fastest round counts. */
  encodeBytesPerS: number;
  decodeBytesPerS: number;
  memcpyBytesPerS: number;
}

export interface ReadSpeed {
  bytesPerS: number;
  readBytes: number;
  /** Past the page cache; otherwise it may be a speed of memory. */
  direct: boolean;
}

export interface ExpertBenchOptions {
  hiddenSize: number;
  intermediateSize: number;
  /** Of each form; executed in turn. */
  experts: number;
  /** Rows that each expert is executed on: one measurement for each entry. */
  tokens: Int32Array;
  /** Of each measurement. */
  milliseconds: number;
}

/** Medians over rounds in which a buffer is read, every BF16 expert executed, and every fixed4 expert. Bytes: weights as stored. */
export interface ExpertSpeed {
  tokens: number;
  readBytesPerS: number;
  bf16BytesPerS: number;
  fixed4BytesPerS: number;
  /** BF16's time over fixed4's. */
  fixed4Speedup: number;
}

/** Medians over the rounds of one operator at sizes of a published model. */
export interface OperatorSpeed {
  operation: string;
  sizes: string;
  rows: number;
  callMs: number;
  /** Bytes that a call must read and write, over its time and the read bandwidth. */
  readShare: number;
  /** Multiply-adds over its time and the peak of the device's instruction set; other operations count as one. */
  fmaShare: number;
}
