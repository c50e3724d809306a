/** Types of the addon's measurements of this machine (native/addon.d.ts). */
import type { WeightFormat } from '../shared/model/tensor-source.js';

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

/** A form of random BF16 weights. `upperAlone`: only the upper slice of a sliced format is stored and read. */
export interface ExpertForm {
  format: WeightFormat;
  upperAlone: boolean;
}

export interface ExpertBenchOptions {
  hiddenSize: number;
  intermediateSize: number;
  /** One at least. */
  forms: ExpertForm[];
  /** Number of experts in each form; they are executed in turn. */
  experts: number;
  /** Numbers of rows of an execute: one measurement for each entry. */
  tokens: Int32Array;
  /** Duration of each measurement. */
  milliseconds: number;
}

/** Medians over the rounds. A round reads a buffer, then executes every expert of the first form, every expert of the second, and so on. */
export interface ExpertSpeed {
  tokens: number;
  readBytesPerS: number;
  /** In the order of the request. */
  forms: ExpertFormSpeed[];
}

export interface ExpertFormSpeed {
  /** Bytes of the weights as they are stored. */
  bytesPerS: number;
  weightsPerS: number;
  /** The time of the first form divided by the time of this one. */
  speedup: number;
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
