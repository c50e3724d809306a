/** Types of the addon's measurements of this machine (native/addon.d.ts). */

export interface CodecSpeed {
  /** Stored bytes (coded exponents; uncoded signs and mantissas) divided by the bytes of the BF16 tensor. */
  ratio: number;
  /** BF16 bytes encoded or decoded per second; the fastest round counts. */
  encodeBytesPerS: number;
  decodeBytesPerS: number;
  memcpyBytesPerS: number;
}

export interface ReadSpeed {
  bytesPerS: number;
  readBytes: number;
  /** Reads went past the page cache; otherwise this may be the speed of memory. */
  direct: boolean;
}

export interface ExpertBenchOptions {
  hiddenSize: number;
  intermediateSize: number;
  /** Number of experts in each format; they are executed in turn. */
  experts: number;
  /** Numbers of rows of an execute: one measurement for each entry. */
  tokens: Int32Array;
  /** Duration of each measurement. */
  milliseconds: number;
}

/**
 * Medians over the rounds. A round reads a buffer, then executes every BF16 expert and every fixed4 expert. Bytes count weights as they are
 * stored.
 */
export interface ExpertSpeed {
  tokens: number;
  readBytesPerS: number;
  bf16BytesPerS: number;
  fixed4BytesPerS: number;
  /** The time of BF16 divided by the time of fixed4. */
  fixed4Speedup: number;
}

/** Medians over the rounds of one operator at sizes of a published model. */
export interface OperatorSpeed {
  operation: string;
  sizes: string;
  rows: number;
  callMs: number;
  /** Bytes that a call must read and write, divided by its time and by the read bandwidth. */
  readShare: number;
  /** Multiply-adds divided by the call's time and by the peak of the device's instruction set; any other operation counts as one. */
  fmaShare: number;
}
