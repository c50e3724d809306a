/** The cache of slices of a worker: what of its memory is for which slices. Pure. */
import type { SliceSizes } from '../../shared/decisions/slices/displace-slices.js';
import type { PoolPlan } from '../../shared/decisions/caching/plan-pools.js';
import type { MachineTimes } from './fit-machine-times.js';
import { planSlices, type CacheRequest } from './plan-cache.js';
import { automaticSlots, type SlotPlan } from './plan-slots.js';
import type { SlotSizes } from './slot-sizes.js';

export interface SlicedCachePlan extends SliceSizes {
  hasLower: boolean;
  /** Slots of the cache: most experts whose upper slices it can hold. 0: the memory is too small for a cache. */
  slots: number;
  /** Lower slices that may be in the cache's slots without being kept. */
  lowerPlaces: number;
  bytes: number;
}

/**
 * A cache of slices in the memory of a plan. It leaves places for as many lower slices as there are working slots, but at most half of the memory:
 * executions that read them must go on when upper slices fill the cache. `lowerBytes`: null if no lower slices are loaded; `experts`: of all layers.
 */
export function planSlicedCache(
  { slots, cacheBytes }: Pick<SlotPlan, 'slots' | 'cacheBytes'>,
  { upperBytes, lowerBytes, experts }: { upperBytes: number; lowerBytes: number | null; experts: number },
): SlicedCachePlan {
  const hasLower = lowerBytes !== null;
  const sizes = { upperBytes, lowerBytes: lowerBytes ?? 0 };
  const lowerPlaces = hasLower ? Math.max(1, Math.min(slots, Math.floor(cacheBytes / 2 / Math.max(1, lowerBytes)))) : 0;
  const placesBytes = lowerPlacesBytes({ ...sizes, lowerPlaces });
  const mostBytes = experts * (sizes.upperBytes + sizes.lowerBytes) + placesBytes;
  const bytes = Math.min(cacheBytes, mostBytes);
  const holdsOne = bytes - placesBytes >= sizes.upperBytes;
  const cacheSlots = holdsOne ? Math.min(experts, Math.floor(bytes / sizes.upperBytes)) : 0;
  return { ...sizes, hasLower, slots: cacheSlots, lowerPlaces, bytes };
}

/** Bytes of a cache that kept slices may not take. */
export function lowerPlacesBytes({
  lowerPlaces,
  lowerBytes,
}: Pick<SlicedCachePlan, 'lowerPlaces' | 'lowerBytes'>): number {
  return lowerPlaces * lowerBytes;
}

/** The slices that a worker keeps in a cache of `budgetBytes` beside as many working slots as it has by itself. `times`: as planSlices takes them. */
export function planWorkerSlices(
  request: Omit<CacheRequest, 'entryBytes' | 'pools'>,
  { entryBytes, lowerBytes }: Pick<SlotSizes, 'entryBytes' | 'lowerBytes'>,
  expertsPerToken: number,
  times: MachineTimes,
): PoolPlan {
  const { budgetBytes: cacheBytes, layers } = request;
  const slots = automaticSlots(expertsPerToken, { groupSize: 'auto', workers: null }, entryBytes.full);
  const upperBytes = entryBytes.full - (lowerBytes ?? 0);
  const experts = layers * request.experts;
  const cache = planSlicedCache({ slots, cacheBytes }, { upperBytes, lowerBytes, experts });
  const budgetBytes = cache.slots === 0 ? 0 : cache.bytes - lowerPlacesBytes(cache);
  return planSlices({ ...request, budgetBytes }, cache, times);
}
