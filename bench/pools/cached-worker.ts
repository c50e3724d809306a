import { CACHE_POLICIES } from '../../shared/settings/cache-policies.js';
import type { ExpertStorage, NodeSettings } from '../../shared/settings/node-settings.js';
import type { DeviceProfile } from '../../engine/emulation/device-profile.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { NO_CAPACITIES } from '../../shared/decisions/caching/pool-capacities.js';
import { clusterTimes, type ClusterTimes } from '../../simulator/simulate/cluster-set-up.js';

/**
 * What is compared: the policies of `worker.cache_policy`, no cache, and `ranked`: the eviction of `planned`, by rank, with whole experts
 * only (ZipMoE's figure 10, its cache without planning).
 */
export const COMPARED_POLICIES = [
  'planned',
  'ranked',
  ...CACHE_POLICIES.filter((name) => name !== 'planned'),
  'none',
] as const;
export type ComparedPolicy = (typeof COMPARED_POLICIES)[number];

/** A model on the one machine of a profile, whose memory is divided. */
export interface CachedMachine {
  model: string;
  profile: DeviceProfile;
  storage: ExpertStorage;
  times: ClusterTimes;
}

export function cachedMachine(profile: DeviceProfile, storage: ExpertStorage): CachedMachine {
  return { model: profile.model.name, profile, storage, times: clusterTimes(profile, storage) };
}

/** Bytes of the machine's memory. */
export interface MemoryDivision {
  /** All of it. */
  memoryBytes: number;
  /** Everything of the model but its experts, and what is reserved. */
  denseBytes: number;
  /** Working slots: the experts of a token. */
  slotsBytes: number;
  cacheBytes: number;
}

/** So much memory that the cache may hold this share of all experts, if it keeps whole ones. Pure. */
export function divideMemory({ profile, times }: CachedMachine, cachedShare: number): MemoryDivision {
  const { layers, expertLayers, experts, expertsPerToken } = profile.model.shape;
  const { main, worker } = times;
  const denseBytes = main.outerBytes + layers.length * main.denseLayerBytes;
  const slotsBytes = worker.slotSharedBytes + expertsPerToken * worker.slotBytes;
  const cacheBytes = Math.round(cachedShare * expertLayers * experts) * worker.slotBytes;
  return { memoryBytes: denseBytes + slotsBytes + cacheBytes, denseBytes, slotsBytes, cacheBytes };
}

/**
 * Settings of the worker under a policy. Threads are fixed, so that nothing of the machine that simulates enters. Throws USAGE where a cache
 * of no bytes is asked for.
 */
export function cachingSettings(
  worker: NodeSettings['worker'],
  policy: ComparedPolicy,
  { cacheBytes }: MemoryDivision,
  { times }: CachedMachine,
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

/** One for each chunk of exponents of a traced expert, so that it is recovered in one step, at the profile's rate. */
const DECOMPRESSION_THREADS = 3;
