import type { LoadOutcome } from '../../native/index.js';
import { RunningMean } from './running-mean.js';
import type { ExpertSource, TensorSource } from '../../shared/model/tensor-source.js';
import type { KeptPart } from '../../shared/planner/cache-decisions.js';
import type { LoadProfile } from '../../shared/planner/load-profile.js';

/** What a load has read and what it has taken from memory. */
export interface LoadedParts {
  exponents: KeptPart;
  signMantissa: KeptPart;
}

/** What loading costs here, from the loads so far. */
export class LoadCosts {
  private readonly shape: Pick<LoadProfile, 'compressionRatio' | 'threads' | 'shards' | 'tensors'>;
  private readonly exponentReadMs = new RunningMean();
  private readonly signMantissaReadMs = new RunningMean();
  private readonly decompressMs = new RunningMean();

  /** `expert`: any one of the model's, `threads`: that decompress. */
  constructor(expert: ExpertSource, threads: number) {
    const tensors = [expert.gate, expert.up, expert.down];
    const exponents = tensors.flatMap(exponentChunks);
    const bytesOf = (kind: 'storedBytes' | 'plainBytes'): number =>
      exponents.reduce((sum, chunk) => sum + chunk[kind], 0);
    this.shape = {
      compressionRatio: bytesOf('plainBytes') === 0 ? 1 : bytesOf('storedBytes') / bytesOf('plainBytes'),
      shards: Math.max(1, Math.round(exponents.length / tensors.length)),
      ...{ threads, tensors: tensors.length },
    };
  }

  add({ exponents, signMantissa }: LoadedParts, outcome: LoadOutcome): void {
    if (!outcome.loaded) return;
    if (exponents.from === 'storage') this.exponentReadMs.add(outcome.exponentReadMs);
    if (signMantissa.from === 'storage') this.signMantissaReadMs.add(outcome.signMantissaReadMs);
    this.decompressMs.add(outcome.decompressMs);
  }

  get profile(): LoadProfile {
    const { tensors, shards } = this.shape;
    return {
      ...this.shape,
      signMantissaReadMs: this.signMantissaReadMs.mean / tensors,
      exponentReadMs: this.exponentReadMs.mean / (tensors * shards),
      decompressMs: this.decompressMs.mean / (tensors * shards),
    };
  }
}

function exponentChunks({ chunks }: TensorSource): TensorSource['chunks'] {
  return chunks.filter(({ plane }) => plane === 0);
}
