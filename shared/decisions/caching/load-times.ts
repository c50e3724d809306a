/** Costs of loading one tensor of an expert on a machine (ZipMoE sections 3.2 and 3.3, appendix C). Means over the experts of a pack. */
export interface LoadTimes {
  /** u: time to read the SM-chunk (every plane but the exponents) of one tensor. */
  signMantissaReadMs: number;
  /** v: time to read one E-chunk; the paper has v = rho u / K. */
  exponentReadMs: number;
  /** c: time to decompress one E-chunk and recover its rows. */
  decompressMs: number;
  /** rho: stored bytes of the exponents divided by their plain bytes. */
  compressionRatio: number;
  /** L: decompression threads. */
  threads: number;
  /** K: E-chunks of a tensor. */
  shards: number;
  /** n: tensors of an expert. */
  tensors: number;
}

/** The parts of an expert that are in memory: none, its E-chunks, its SM-chunks, both, or the full expert. */
export type CompressionState = 'missing' | 'exponent' | 'signMantissa' | 'compressed' | 'full';

/** States from which an expert must be reconstructed. */
export type PartlyLoadedState = Exclude<CompressionState, 'full'>;

export const PARTS_IN_MEMORY: Readonly<Record<CompressionState, { exponents: boolean; signMantissa: boolean }>> = {
  missing: { exponents: false, signMantissa: false },
  exponent: { exponents: true, signMantissa: false },
  signMantissa: { exponents: false, signMantissa: true },
  compressed: { exponents: true, signMantissa: true },
  full: { exponents: true, signMantissa: true },
};
