import type { LoadOutcome } from '../../native/index.js';
import { OverallMean } from './overall-mean.js';
import { partOfPlane, PARTS, perPart, sumOfParts, type PerPart, UPPER_PART } from '../../shared/model/expert-parts.js';
import type { ExpertSource, TensorSource } from '../../shared/model/tensor-source.js';
import type { CachedPart } from './cache-decisions.js';
import type { LoadRates } from './host-memory-plan.js';
import type { LoadTimes } from '../../shared/decisions/caching/load-times.js';

const MS_PER_S = 1000;

/** The mean costs of loading on this worker, from the loads so far. */
export class LoadCosts {
  private readonly shape: Pick<LoadTimes, 'compressionRatio' | 'threads' | 'shards' | 'tensors'>;
  private readonly readMs = perPart(() => new OverallMean());
  private readonly decompressMs = new OverallMean();
  /** Totals of loads that came from only one of the two sources. */
  private readonly fromHost = { bytes: 0, ms: 0 };
  private readonly fromStorage = { bytes: 0, ms: 0 };

  /** `expert`: any expert of the model; `threads`: number of decompression threads. */
  constructor(expert: ExpertSource, threads: number) {
    const tensors = [expert.gate, expert.up, expert.down];
    const exponents = tensors.flatMap(exponentChunks);
    const bytesOf = (kind: 'storedBytes' | 'plainBytes'): number =>
      exponents.reduce((sum, chunk) => sum + chunk[kind], 0);
    this.shape = {
      compressionRatio: bytesOf('plainBytes') === 0 ? 1 : bytesOf('storedBytes') / bytesOf('plainBytes'),
      shards: Math.max(1, Math.round(exponents.length / tensors.length)),
      threads,
      tensors: tensors.length,
    };
  }

  /** `parts`: each was read from storage, taken from an entry, or not wanted: a load of one slice counts for that slice alone. */
  add(parts: PerPart<CachedPart>, outcome: LoadOutcome): void {
    if (!outcome.loaded) return;
    for (const part of PARTS) if (parts[part].from === 'storage') this.readMs[part].add(outcome.readMs[part]);
    // Lower slices have nothing to decompress.
    if (parts[UPPER_PART].from !== 'notWanted') this.decompressMs.add(outcome.decompressMs);
    this.addRate(outcome);
  }

  /** B_k of FluxMoE's section 4.2, with decoding included: the rate of the slower of both stages. */
  get rates(): LoadRates {
    const perS = ({ bytes, ms }: { bytes: number; ms: number }): number | null =>
      bytes > 0 && ms > 0 ? (bytes / ms) * MS_PER_S : null;
    return { hostBytesPerS: perS(this.fromHost), storageBytesPerS: perS(this.fromStorage) };
  }

  private addRate(outcome: LoadOutcome): void {
    const { readBytes, hostBytes = 0, readMs, decompressMs } = outcome;
    // Skip loads from both sources or from neither: cached parts tell nothing about the source of the others.
    if (readBytes > 0 === hostBytes > 0) return;
    const from = hostBytes > 0 ? this.fromHost : this.fromStorage;
    from.bytes += hostBytes + readBytes;
    from.ms += Math.max(sumOfParts(readMs), decompressMs);
  }

  get loadTimes(): LoadTimes {
    const { tensors, shards } = this.shape;
    return {
      ...this.shape,
      signMantissaReadMs: this.readMs.signMantissa.mean / tensors,
      exponentReadMs: this.readMs.exponent.mean / (tensors * shards),
      decompressMs: this.decompressMs.mean / (tensors * shards),
    };
  }
}

function exponentChunks({ chunks }: TensorSource): TensorSource['chunks'] {
  return chunks.filter(({ plane }) => partOfPlane(plane) === 'exponent');
}
