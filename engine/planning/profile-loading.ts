import { FROM_STORAGE, createExpertSlots, type Device, type ExpertSlots } from '../../native/index.js';
import type { ChunkLocation, ExpertSource, ModelSource } from '../../shared/model/tensor-source.js';
import type { LoadProfile } from '../../shared/planner/index.js';
import type { SlotSizes } from './slot-sizes.js';

/** Experts that are loaded to be measured, and how long that may take before no more are begun. */
const PROFILED_LOADS = 48;
const PROFILE_LIMIT_MS = 3000;

/** What loading and executing an expert costs on this machine. */
export interface MachineProfile {
  load: LoadProfile;
  /** One expert on one row. */
  executeMs: number;
  /** Loads that were measured. */
  loads: number;
}

/** Means over the experts that were loaded together. */
interface ProfiledRound {
  readMs: number;
  decompressMs: number;
  executeMs: number;
}

/**
 * u, v, c, rho and L of ZipMoE (section 3.3, appendix C) by loading experts from all over a pack and executing them. `atOnce` of them are
 * loaded together, as a layer's are: reading, decompressing and executing then get in each other's way as they will. Each cost is the
 * median of these rounds, so that a machine that is busy for a moment does not count; the first round, which makes pages and files
 * known, counts only where it is the only one.
 * @throws what loading throws: PACK_CORRUPT, STORAGE_FAILED, DEVICE_OUT_OF_MEMORY
 */
export async function profileLoading(
  device: Device,
  source: ModelSource,
  { shape, loader }: SlotSizes,
  atOnce: number,
  nowMs: () => number,
): Promise<MachineProfile> {
  const slots = createExpertSlots(device, shape, atOnce, 1, { ...loader, exponentEntries: 0, signMantissaEntries: 0 });
  const rounds: ProfiledRound[] = [];
  const { layers, experts } = source.shape;
  const beganMs = nowMs();
  try {
    const count = Math.max(2, Math.round(PROFILED_LOADS / atOnce));
    for (let round = 0; round < count && (round === 0 || nowMs() - beganMs < PROFILE_LIMIT_MS); round += 1) {
      const sources = Array.from({ length: atOnce }, (_, index) => {
        const place = Math.floor(((round * atOnce + index) * layers * experts) / (count * atOnce));
        return source.expert(Math.floor(place / experts), place % experts);
      });
      rounds.push(await loadTogether(slots, sources, shape.hiddenSize));
    }
  } finally {
    slots.dispose();
  }
  const counted = rounds.slice(-Math.max(1, rounds.length - 1));
  return {
    load: loadProfile(source.expert(0, 0), loader.decompressionThreads, counted),
    executeMs: median(counted.map((round) => round.executeMs)),
    loads: rounds.length * atOnce,
  };
}

async function loadTogether(
  slots: ExpertSlots,
  sources: readonly ExpertSource[],
  hiddenSize: number,
): Promise<ProfiledRound> {
  const hidden = new Uint8Array(hiddenSize * Float32Array.BYTES_PER_ELEMENT);
  const loads = await Promise.allSettled(
    sources.map(async (source, slot) => {
      const outcome = await slots.load(slot, source, FROM_STORAGE);
      const { executeMs } = await slots.execute(slot, 1, hidden, hidden.slice());
      return {
        readMs: outcome.exponentReadMs + outcome.signMantissaReadMs,
        decompressMs: outcome.decompressMs,
        executeMs,
      };
    }),
  );
  const mean: ProfiledRound = { readMs: 0, decompressMs: 0, executeMs: 0 };
  for (const load of loads) {
    if (load.status === 'rejected') throw load.reason;
    mean.readMs += load.value.readMs / sources.length;
    mean.decompressMs += load.value.decompressMs / sources.length;
    mean.executeMs += load.value.executeMs / sources.length;
  }
  return mean;
}

/**
 * The profile that rounds of loads from storage show. All reads together are shared out by bytes: of one read alone, the system
 * (or whoever holds reads back) may charge a part to the next. `expert`: any of the model's; `threads`: L.
 */
function loadProfile(expert: ExpertSource, threads: number, rounds: readonly ProfiledRound[]): LoadProfile {
  const tensors = [expert.gate, expert.up, expert.down];
  const chunks = tensors.flatMap((tensor) => tensor.chunks);
  const exponents = chunks.filter(({ plane }) => plane === 0);
  const exponentBytes = storedBytes(exponents);
  const plainBytes = exponents.reduce((sum, chunk) => sum + chunk.plainBytes, 0);
  const shards = Math.max(1, Math.round(exponents.length / tensors.length));
  const readMs = median(rounds.map((round) => round.readMs));
  const exponentShare = exponentBytes / storedBytes(chunks);
  return {
    signMantissaReadMs: (readMs * (1 - exponentShare)) / tensors.length,
    exponentReadMs: (readMs * exponentShare) / (shards * tensors.length),
    decompressMs: median(rounds.map((round) => round.decompressMs)) / (shards * tensors.length),
    compressionRatio: exponentBytes / plainBytes,
    ...{ threads, shards, tensors: tensors.length },
  };
}

function storedBytes(chunks: readonly ChunkLocation[]): number {
  return chunks.reduce((sum, chunk) => sum + chunk.storedBytes, 0);
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((left, right) => left - right);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}
