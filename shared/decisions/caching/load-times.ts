import { type Part, PARTS, recordOf } from '../../model/expert-parts.js';

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
export type CompressionState = 'missing' | Part | 'compressed' | 'full';

/** States from which an expert must be reconstructed. */
export type PartlyLoadedState = Exclude<CompressionState, 'full'>;

export const PARTLY_LOADED_STATES: readonly PartlyLoadedState[] = ['missing', ...PARTS, 'compressed'];

export function perState<T>(valueOf: (state: CompressionState) => T): Record<CompressionState, T> {
  return recordOf([...PARTLY_LOADED_STATES, 'full'], valueOf);
}

export function isInMemory(state: CompressionState, part: Part): boolean {
  return state === part || state === 'compressed' || state === 'full';
}

/** The state of an expert that is not full, by its parts in memory. */
export function stateOfParts(hasPart: (part: Part) => boolean): PartlyLoadedState {
  if (PARTS.every(hasPart)) return 'compressed';
  return PARTS.find(hasPart) ?? 'missing';
}
