import { EXPERT_POLICIES } from '../../shared/settings/cache-policies.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { ExpertStorage } from '../../shared/settings/setting-choices.js';
import type { DeviceProfile } from '../../engine/emulation/device-profile.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { NO_CAPACITIES } from '../../shared/decisions/caching/pool-capacities.js';
import { clusterTimes, type ClusterTimes } from '../../simulator/simulate/cluster-set-up.js';

/**
 * The compared policies: those of `worker.cache_policy`, no cache, and `ranked`, which evicts like `planned`, by rank, but caches whole experts
 * only (ZipMoE's figure 10, its cache without planning).
 */
export const COMPARED_POLICIES = [
  'planned',
  'ranked',
  ...EXPERT_POLICIES.filter((name) => name !== 'planned'),
  'none',
] as const;
export type ComparedPolicy = (typeof COMPARED_POLICIES)[number];

/** A model on a profile's single machine, whose memory is divided. */
export interface PoolsMachine {
  model: string;
  profile: DeviceProfile;
  storage: ExpertStorage;
  times: ClusterTimes;
}

export function poolsMachine(profile: DeviceProfile, storage: ExpertStorage): PoolsMachine {
  return { model: profile.model.name, profile, storage, times: clusterTimes(profile, storage) };
}

/** The division of the machine's memory, in bytes. */
export interface MemoryDivision {
  /** The whole memory. */
  memoryBytes: number;
  /** All of the model except its experts, and reserved memory. */
  denseBytes: number;
  /** Working slots for the experts of one token. */
  slotsBytes: number;
  cacheBytes: number;
}

/** Memory in which the cache can hold this share of all experts in whole form. Pure. */
export function divideMemory({ profile, times }: PoolsMachine, cachedShare: number): MemoryDivision {
  const { layers, expertLayers, experts, expertsPerToken } = profile.model.shape;
  const { main, worker } = times;
  const denseBytes = main.outerBytes + layers.length * main.denseLayerBytes;
  const slotsBytes = worker.slotSharedBytes + expertsPerToken * worker.slotBytes;
  const cacheBytes = Math.round(cachedShare * expertLayers * experts) * worker.slotBytes;
  return { memoryBytes: denseBytes + slotsBytes + cacheBytes, denseBytes, slotsBytes, cacheBytes };
}

/**
 * Settings of the worker under a policy. The number of threads is fixed, so that the result does not depend on the simulating machine. Throws
 * USAGE if the cache would have no bytes.
 */
export function cachingSettings(
  worker: NodeSettings['worker'],
  policy: ComparedPolicy,
  { cacheBytes }: MemoryDivision,
  { times }: PoolsMachine,
): NodeSettings['worker'] {
  const settings = { ...worker, decompressionThreads: DECOMPRESSION_THREADS, pools: null };
  if (policy === 'none') return { ...settings, cacheBytes: 0 };
  if (cacheBytes < times.worker.slotBytes) {
    throw new OdmoeError('USAGE', 'a budget holds not one expert: give a larger share, or only the policy none');
  }
  if (policy !== 'ranked') return { ...settings, cacheBytes, cachePolicy: policy };
  const full = Math.floor(cacheBytes / times.worker.slotBytes);
  return { ...settings, cachePolicy: 'planned', pools: { ...NO_CAPACITIES, full } };
}

/** One thread for each chunk of exponents of a traced expert, so that it is decompressed in one step, at the profile's rate. */
const DECOMPRESSION_THREADS = 3;
