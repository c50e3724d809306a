import { type CachePolicy, poolsOf } from '../../shared/settings/cache-policies.js';
import type { MachineProfile } from '../../engine/planning/fit-profile.js';
import { profileLoading } from '../../engine/planning/profile-loading.js';
import { type ChooseResident, residentFormat } from '../../engine/loading/choose-resident.js';
import { measureReadDepth, type MeasureReads, USUAL_READ_DEPTH } from '../../engine/planning/measure-read-depth.js';
import { slotSizes, type SlotSizes } from '../../engine/planning/slot-sizes.js';
import type { Device, ExpertSlots } from '../../native/index.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import type { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import { entriesOf, NO_CAPACITIES } from '../../shared/decisions/caching/pool-capacities.js';
import { randomFraction, type Runtime } from '../../shared/base/runtime/runtime.js';
import { automaticSlots, planSlots, type SlotPlan } from '../loader/plan-slots.js';
import { ExpertCache } from './expert-cache.js';
import {
  planForMachine,
  planFullExperts,
  planStates,
  poolBytes,
  requirePools,
  type CachePlan,
  type WorkerCacheRequest,
} from './worker-cache-plan.js';

/** The slots of a worker and what is kept in them. */
export interface WorkerSlots {
  /** Working slots, and behind them those of the cache. */
  slots: ExpertSlots;
  /** Rows of one native call. */
  maxRows: number;
  decompressionThreads: number;
  /** Null: cacheless. */
  cache: ExpertCache | null;
  /** Slots have room to pack experts that are kept. Left out: they have not. */
  packs?: boolean;
}

/** What slots are made of, and for whom. */
export interface SlotMaterial {
  device: Device;
  source: ModelSource;
  settings: NodeSettings;
  /** What this worker was asked for in earlier runs; null: it is to keep nothing. */
  counts: ActivationCounts | null;
  runtime: Runtime;
  measureReads: MeasureReads | null;
  chooseResident: ChooseResident | null;
  log: Logger;
}

/**
 * The slots of a worker and the pools of its cache, all within the device's budget. Throws DEVICE_OUT_OF_MEMORY when that holds not
 * one expert, or not the pools that were asked for.
 */
export async function makeWorkerSlots(material: SlotMaterial): Promise<WorkerSlots> {
  const { device, source, settings, counts } = material;
  const { decompressionThreads, directIo } = settings.worker;
  const readDepth = await readDepthOf(material);
  const sizes = slotSizes(device, source, { decompressionThreads, directIo, storageBytesPerS: 0, readDepth });
  const { shape, loader } = sizes;
  const { plan, packs: mayPack } = planMemory(material, sizes, await isToPack(material));
  const kept = counts === null ? null : await planCache(material, sizes, plan, counts);
  const entries = entriesOf(kept?.capacities ?? NO_CAPACITIES);
  const packs = mayPack && entries.full > 0;
  const slots = device.createExpertSlots(shape, plan.slots + entries.full, plan.maxRows, {
    ...loader,
    packs,
    exponentEntries: entries.exponent,
    signMantissaEntries: entries.signMantissa,
  });
  tellOfReads(slots, material.log);
  const cache = kept === null || counts === null ? null : makeCache(material, kept, sizes, counts);
  return { slots, maxRows: plan.maxRows, decompressionThreads: loader.decompressionThreads, cache, packs };
}

/** Throws nothing: storage that cannot be measured yet is read at the usual depth. */
async function readDepthOf({ source, settings, measureReads, log }: SlotMaterial): Promise<number> {
  const { readDepth, directIo } = settings.worker;
  if (readDepth !== 'auto') return readDepth;
  if (measureReads === null) return USUAL_READ_DEPTH;
  const chosen = await measureReadDepth(source, directIo, measureReads);
  log.info('storage measured', { ...chosen });
  return chosen.depth;
}

function tellOfReads(slots: ExpertSlots, log: Logger): void {
  const { ringRefusal, ...reads } = slots.storageReads;
  if (ringRefusal !== '') {
    const remedy = 'nothing has to be done: threads read in its place';
    log.warn('io_uring cannot be used', { reason: ringRefusal, remedy });
  }
  log.info('experts are read from storage', reads);
}

/**
 * Whether experts that are kept are to be packed as fixed4. Not where their memory is others' too: it is to go back slot by slot.
 * Throws what measuring throws but for a lack of memory.
 */
async function isToPack({ device, source, settings, counts, chooseResident, log }: SlotMaterial): Promise<boolean> {
  const { resident, yields } = settings.worker;
  const { shippedFormat } = source;
  if (counts === null || yields || shippedFormat !== 'bf16' || device.info().backend === 'cuda') return false;
  const { format, choice } = await residentFormat(device, shippedFormat, resident, chooseResident);
  if (choice !== null) log.info('the form of kept experts was measured', { ...choice });
  return format === 'fixed4';
}

/** With room to pack experts where that takes no slot, nor more than a small part of the cache. */
function planMemory(
  material: SlotMaterial,
  { shape, loader, entryBytes }: SlotSizes,
  isToPack: boolean,
): { plan: SlotPlan; packs: boolean } {
  const { device, source, settings, log } = material;
  const { slots, cacheBytes, pools } = settings.worker;
  const { expertsPerToken } = source.shape;
  const { budgetBytes, usedBytes } = device.info();
  const wanted: SlotPlan = {
    slots: slots === 'auto' ? automaticSlots(expertsPerToken, groupsOf(settings), entryBytes.full) : slots,
    maxRows: settings.main.miniBatchRows,
    cacheBytes: pools === null ? cacheBytes : poolBytes(pools, entryBytes),
  };
  const freeBytes = budgetBytes === 0 ? null : budgetBytes - usedBytes;
  const planned = (packs: boolean): SlotPlan =>
    planSlots(wanted, freeBytes, (maxRows) => device.expertSlotBytes(shape, maxRows, { ...loader, packs }));
  const plain = planned(false);
  const roomy = isToPack ? packingPlan(() => planned(true)) : null;
  const packs =
    roomy !== null &&
    roomy.slots === plain.slots &&
    roomy.maxRows === plain.maxRows &&
    (roomy.cacheBytes === plain.cacheBytes ||
      (pools === null && roomy.cacheBytes >= LEAST_KEPT_TO_PACK * entryBytes.full));
  const plan = packs ? roomy : plain;
  if (isToPack && !packs) log.warn('the memory budget leaves no room to pack experts that are kept', { budgetBytes });
  if (pools !== null) requirePools(wanted.cacheBytes, plan.cacheBytes, plan.slots);
  // A cache as large as the budget is to have what slots leave of it.
  const isCut = plan.cacheBytes < wanted.cacheBytes && wanted.cacheBytes < budgetBytes;
  if (plan.slots < wanted.slots || plan.maxRows < wanted.maxRows || isCut) {
    log.warn('the memory budget holds less than was asked for', { budgetBytes, wanted, plan });
  }
  return { plan, packs };
}

/** Packing takes the memory of one expert: it may take it from a cache of so many. */
const LEAST_KEPT_TO_PACK = 16;

/** Null: the memory does not hold one slot and the room to pack. */
function packingPlan(plan: () => SlotPlan): SlotPlan | null {
  try {
    return plan();
  } catch (thrown) {
    if (toOdmoeError(thrown).code === 'DEVICE_OUT_OF_MEMORY') return null;
    throw thrown;
  }
}

/** What this worker knows of the groups that it may be of. */
function groupsOf({ placement, discovery }: NodeSettings): { groupSize: number | 'auto'; workers: number | null } {
  const others = discovery.peers.filter(({ role }) => role === 'worker').length;
  const groupSize = placement.homes === 'strict' ? 'auto' : placement.groupSize;
  return { groupSize, workers: discovery.peers.length === 0 ? null : others + 1 };
}

async function planCache(
  material: SlotMaterial,
  sizes: SlotSizes,
  plan: SlotPlan,
  counts: ActivationCounts,
): Promise<CachePlan> {
  const { source, settings, log } = material;
  const { cachePolicy: policy, pools, yields } = settings.worker;
  const { groupSize } = settings.placement;
  const { expertLayers: layers, experts, expertsPerToken } = source.shape;
  const activated = groupSize === 'auto' ? 1 : Math.ceil(expertsPerToken / groupSize);
  const budgetBytes = plan.cacheBytes;
  const request = { budgetBytes, entryBytes: sizes.entryBytes, layers, experts, activated, counts };
  // With homes of its own a worker is asked for a part of the experts only, and whole ones of these are what pays. Only they give memory back.
  const written = pools === null ? null : { capacities: pools, usedBytes: budgetBytes, expected: null };
  const profile =
    written !== null || yields || poolsOf(policy).length === 1 || settings.placement.homes === 'strict'
      ? null
      : await profileMachine(material, sizes, profiledAtOnce(sizes, plan, activated));
  const cachePlan =
    written ?? (profile === null ? planFullExperts(request) : planMeasured(request, policy, profile, log));
  log.info('cache planned', {
    policy,
    budgetBytes,
    ...cachePlan,
    recordedActivations: counts.total,
    profile,
  });
  return cachePlan;
}

/** A cache is a gain, no need: what its planning cannot cope with must not keep a worker from starting. */
function planMeasured(
  request: WorkerCacheRequest,
  policy: CachePolicy,
  profile: MachineProfile,
  log: Logger,
): CachePlan {
  try {
    return policy === 'residency' ? planStates(request, profile) : planForMachine(request, profile);
  } catch (thrown) {
    log.warn('the cache could not be planned and keeps full experts only', { error: toOdmoeError(thrown) });
    return planFullExperts(request);
  }
}

/** As many as a layer asks for, within the memory that slots and cache are going to have. */
function profiledAtOnce({ entryBytes }: SlotSizes, plan: SlotPlan, activated: number): number {
  const { full, exponent, signMantissa } = entryBytes;
  const fitting = Math.floor((plan.slots * full + plan.cacheBytes) / (full + exponent + signMantissa));
  return Math.max(1, Math.min(activated, fitting));
}

/** Null, with a line in the log, when experts cannot be loaded: they are still to be fetched, or the pack is damaged. */
async function profileMachine(
  { device, source, runtime, log }: SlotMaterial,
  sizes: SlotSizes,
  atOnce: number,
): Promise<MachineProfile | null> {
  try {
    return await profileLoading(device, source, sizes, atOnce, () => runtime.nowMs());
  } catch (thrown) {
    const remedy = 'the cache keeps full experts only until the worker is started again';
    log.warn('loading could not be measured', { remedy, error: toOdmoeError(thrown) });
    return null;
  }
}

function makeCache(
  { source, settings, runtime }: SlotMaterial,
  plan: CachePlan,
  { entryBytes: { full, exponent, signMantissa } }: SlotSizes,
  counts: ActivationCounts,
): ExpertCache {
  return new ExpertCache({
    policy: settings.worker.cachePolicy,
    replanPasses: settings.worker.replanPasses,
    experts: source.shape.experts,
    counts,
    random: () => randomFraction(runtime),
    capacities: plan.capacities,
    bytes: plan.usedBytes,
    expertBytes: { full, compressed: exponent + signMantissa },
  });
}
