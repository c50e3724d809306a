import { type ExpertPolicy, poolsOf } from '../../shared/settings/cache-policies.js';
import type { MachineTimes } from '../../engine/planning/fit-machine-times.js';
import { measureMachineTimes } from '../../engine/planning/measure-machine-times.js';
import { type ChooseWeightForm, resolveWeightForm } from '../../engine/loading/choose-weight-form.js';
import { measureReadDepth, type MeasureReads, USUAL_READ_DEPTH } from '../../engine/planning/measure-read-depth.js';
import { type LoadedSlices, slotSizes, type SlotSizes } from '../../engine/planning/slot-sizes.js';
import type { Device, ExpertSlots } from '../../native/index.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { DraftHeadSource, ModelSource } from '../../shared/model/tensor-source.js';
import type { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import { entriesOf, NO_CAPACITIES, poolBytes } from '../../shared/decisions/caching/pool-capacities.js';
import { randomFraction, type Runtime } from '../../shared/base/runtime/runtime.js';
import { planSlicedCache } from '../../engine/planning/plan-sliced-cache.js';
import { automaticSlots, planSlots, type SlotPlan } from '../../engine/planning/plan-slots.js';
import { ExpertCache } from './expert-cache.js';
import { SlicedCache } from './sliced-cache.js';
import type { WorkerCache } from './worker-cache.js';
import {
  planForMachine,
  planFullExperts,
  planStates,
  requirePools,
  withHeadEntries,
  type CachePlan,
  type WorkerCacheRequest,
} from './worker-cache-plan.js';
import { perPart, sumOfParts } from '../../shared/model/expert-parts.js';

/** The slots of a worker and their cache. */
export interface WorkerSlots {
  /** The working slots, and after them the slots of the cache. */
  slots: ExpertSlots;
  /** Rows of one native call. */
  maxRows: number;
  decompressionThreads: number;
  /** Null: cacheless. */
  cache: WorkerCache | null;
  /** The slots have room to recode cached experts. Left out: they do not. */
  packs?: boolean;
  /** Bytes for lower slices, which each slot has beside its own; null or left out: no lower slices are loaded. */
  lowerBytes?: number | null;
  /** Slots of the cache that only the experts of the model's own head need; left out: none. */
  headSlots?: number;
}

/** Inputs for making the slots of a worker. */
export interface SlotMaterial {
  device: Device;
  /** It gives the experts that are loaded: those that were shipped, or their slices. */
  source: ModelSource;
  /** Null: experts are not sliced. */
  sliced: LoadedSlices | null;
  /** The model's own head, whose experts the slots hold, too; null, or left out: none. */
  head?: DraftHeadSource | null;
  settings: NodeSettings;
  /** Experts that this worker was asked for in earlier runs; null: the worker caches nothing. */
  counts: ActivationCounts | null;
  runtime: Runtime;
  measureReads: MeasureReads | null;
  chooseWeightForm: ChooseWeightForm | null;
  log: Logger;
}

/**
 * The slots of a worker and the pools of its cache, all within the device's budget. Throws DEVICE_OUT_OF_MEMORY when the budget does not hold
 * one expert, or does not hold the pools that the settings ask for.
 */
export async function makeWorkerSlots(material: SlotMaterial): Promise<WorkerSlots> {
  const { device, source, settings, counts, sliced, head = null } = material;
  const { decompressionThreads, directIo } = settings.worker;
  const readDepth = await readDepthOf(material);
  const reading = { decompressionThreads, directIo, storageBytesPerS: 0, readDepth };
  const sizes = slotSizes(device, source, reading, sliced, head);
  const { shape, loader } = sizes;
  const { plan, packs: mayPack } = planMemory(material, sizes, await isToRecode(material));
  if (sliced !== null) return makeSlicedSlots(material, sizes, plan);
  const planned = counts === null ? null : await planCache(material, sizes, plan, counts);
  const cached = planned?.plan ?? null;
  // Memory that others may have anyway needs no such care.
  const headSlots = settings.worker.yields ? 0 : (planned?.headEntries ?? 0);
  const entries = entriesOf(cached?.capacities ?? NO_CAPACITIES);
  const packs = mayPack && entries.full > 0;
  const slots = device.createExpertSlots(shape, plan.slots + entries.full, plan.maxRows, {
    ...loader,
    packs,
    entries: perPart((part) => entries[part]),
  });
  tellOfReads(slots, material.log);
  const cache = cached === null || counts === null ? null : makeCache(material, cached, sizes, counts);
  return { slots, maxRows: plan.maxRows, decompressionThreads: loader.decompressionThreads, cache, packs, headSlots };
}

/** The slots for slices, and their cache if the worker has one. A working slot has memory for both slices from the beginning. */
function makeSlicedSlots(
  { device, source, settings, counts, log }: SlotMaterial,
  { shape, loader, entryBytes, lowerBytes }: SlotSizes,
  plan: SlotPlan,
): WorkerSlots {
  const { maxRows } = plan;
  const cached = planSlicedCache(plan, {
    upperBytes: entryBytes.full - (lowerBytes ?? 0),
    lowerBytes,
    experts: source.shape.experts * source.shape.expertLayers,
  });
  const slots = device.createExpertSlots(shape, plan.slots + (counts === null ? 0 : cached.slots), maxRows, loader);
  tellOfReads(slots, log);
  if (lowerBytes !== null) takeLowers(slots, plan.slots);
  const made = { slots, maxRows, decompressionThreads: loader.decompressionThreads, lowerBytes };
  if (counts === null || cached.slots === 0) return { ...made, cache: null };
  const cache = new SlicedCache({
    shape: { ...cached, experts: source.shape.experts },
    memory: {
      slots: cached.slots,
      bytes: cached.bytes,
      firstSlot: plan.slots,
      isShared: settings.worker.yields,
      calls: slots,
    },
    counts,
  });
  log.info('cache planned', { policy: 'sliced', budgetBytes: plan.cacheBytes, capacities: cache.capacities });
  return { ...made, cache };
}

/** Takes memory for the lower slices of so many slots. If there is none, the slots are disposed. */
function takeLowers(slots: ExpertSlots, count: number): void {
  try {
    for (let slot = 0; slot < count; slot += 1) slots.takeLower(slot);
  } catch (thrown) {
    slots.dispose();
    throw thrown;
  }
}

/** Never throws: if storage cannot be measured yet, it is read at the usual depth. */
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
 * True if cached experts should be recoded to fixed4. False when the worker yields memory to others, because that memory goes back slot by
 * slot. Throws the errors of the measurement, except a lack of memory.
 */
async function isToRecode(material: SlotMaterial): Promise<boolean> {
  const { device, source, settings, counts, chooseWeightForm, log } = material;
  const { resident, yields } = settings.worker;
  const { shippedFormat } = source;
  if (
    material.sliced !== null ||
    counts === null ||
    yields ||
    shippedFormat !== 'bf16' ||
    device.info().backend === 'cuda'
  )
    return false;
  const { format, choice } = await resolveWeightForm(device, shippedFormat, resident, chooseWeightForm);
  if (choice !== null) log.info('the form of cached experts was measured', { ...choice });
  return format === 'fixed4';
}

/** Adds room to recode experts if that costs no slot and only a small part of the cache. */
function planMemory(
  material: SlotMaterial,
  { shape, loader, entryBytes, lowerBytes }: SlotSizes,
  isToRecode: boolean,
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
    planSlots(wanted, freeBytes, (maxRows) => {
      const bytes = device.expertSlotBytes(shape, maxRows, { ...loader, packs });
      return { ...bytes, slotBytes: bytes.slotBytes + (lowerBytes ?? 0) };
    });
  const plain = planned(false);
  const roomy = isToRecode ? recodingPlan(() => planned(true)) : null;
  const packs =
    roomy !== null &&
    roomy.slots === plain.slots &&
    roomy.maxRows === plain.maxRows &&
    (roomy.cacheBytes === plain.cacheBytes ||
      (pools === null && roomy.cacheBytes >= LEAST_CACHED_TO_RECODE * entryBytes.full));
  const plan = packs ? roomy : plain;
  if (isToRecode && !packs) log.warn('the memory budget leaves no memory to recode cached experts', { budgetBytes });
  if (pools !== null) requirePools(wanted.cacheBytes, plan.cacheBytes, plan.slots);
  // A cache that is as large as the budget may get only the bytes that the slots leave; that is no shortage.
  const isCut = plan.cacheBytes < wanted.cacheBytes && wanted.cacheBytes < budgetBytes;
  if (plan.slots < wanted.slots || plan.maxRows < wanted.maxRows || isCut) {
    log.warn('the memory budget holds less than was asked for', { budgetBytes, wanted, plan });
  }
  return { plan, packs };
}

/** Recoding takes the memory of one expert. A cache of at least this many experts may give it up. */
const LEAST_CACHED_TO_RECODE = 16;

/** Null: the memory does not hold one slot and the room to recode. */
function recodingPlan(plan: () => SlotPlan): SlotPlan | null {
  try {
    return plan();
  } catch (thrown) {
    if (toOdmoeError(thrown).code === 'DEVICE_OUT_OF_MEMORY') return null;
    throw thrown;
  }
}

/** The group size and the number of workers, as far as this worker's settings tell them. */
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
): Promise<{ plan: CachePlan; headEntries: number }> {
  const { source, settings, log, head = null } = material;
  const { pools, yields } = settings.worker;
  const policy = expertPolicy(settings);
  const { groupSize } = settings.placement;
  const { expertLayers, experts, expertsPerToken } = source.shape;
  const activated = groupSize === 'auto' ? 1 : Math.ceil(expertsPerToken / groupSize);
  const budgetBytes = plan.cacheBytes;
  const request = { budgetBytes, entryBytes: sizes.entryBytes, layers: expertLayers, experts, activated, counts };
  // With strict homes a worker is asked only for its part of the experts, and caching them whole is best. Only full experts give memory back.
  const written = pools === null ? null : { capacities: pools, usedBytes: budgetBytes, expected: null };
  const times =
    written !== null || yields || poolsOf(policy).length === 1 || settings.placement.homes === 'strict'
      ? null
      : await measureMachine(material, sizes, measuredAtOnce(sizes, plan, activated));
  const ofModel = written ?? (times === null ? planFullExperts(request) : planMeasured(request, policy, times, log));
  const hasHead = head !== null && written === null;
  const { plan: cachePlan, headEntries } = hasHead
    ? withHeadEntries(ofModel, request)
    : { plan: ofModel, headEntries: 0 };
  log.info('cache planned', {
    policy,
    budgetBytes,
    ...cachePlan,
    headEntries,
    recordedActivations: counts.total,
    profile: times,
  });
  return { plan: cachePlan, headEntries };
}

/** The cache only makes the worker faster: if planning it fails, the worker must still start. */
function planMeasured(request: WorkerCacheRequest, policy: ExpertPolicy, times: MachineTimes, log: Logger): CachePlan {
  try {
    return policy === 'residency' ? planStates(request, times) : planForMachine(request, times);
  } catch (thrown) {
    log.warn('the cache could not be planned and keeps full experts only', { error: toOdmoeError(thrown) });
    return planFullExperts(request);
  }
}

/** The number of experts that a layer asks for at once, limited to the memory of the planned slots and cache. */
function measuredAtOnce({ entryBytes }: SlotSizes, plan: SlotPlan, activated: number): number {
  const { full } = entryBytes;
  const fitting = Math.floor((plan.slots * full + plan.cacheBytes) / (full + sumOfParts(entryBytes)));
  return Math.max(1, Math.min(activated, fitting));
}

/** Null, with a line in the log, when experts cannot be loaded: they are not fetched yet, or the pack is damaged. */
async function measureMachine(
  { device, source, runtime, log }: SlotMaterial,
  sizes: SlotSizes,
  atOnce: number,
): Promise<MachineTimes | null> {
  try {
    return await measureMachineTimes(device, source, sizes, atOnce, () => runtime.nowMs());
  } catch (thrown) {
    const remedy = 'the cache keeps full experts only until the worker is started again';
    log.warn('loading could not be measured', { remedy, error: toOdmoeError(thrown) });
    return null;
  }
}

function expertPolicy({ worker }: NodeSettings): ExpertPolicy {
  assertInvariant(worker.cachePolicy !== 'sliced', 'settings refuse a cache of slices where experts are not sliced.');
  return worker.cachePolicy;
}

function makeCache(
  { source, settings, runtime }: SlotMaterial,
  plan: CachePlan,
  { entryBytes }: SlotSizes,
  counts: ActivationCounts,
): ExpertCache {
  return new ExpertCache({
    policy: expertPolicy(settings),
    replanPasses: settings.worker.replanPasses,
    experts: source.shape.experts,
    counts,
    random: () => randomFraction(runtime),
    capacities: plan.capacities,
    bytes: plan.usedBytes,
    expertBytes: { full: entryBytes.full, compressed: sumOfParts(entryBytes) },
  });
}
