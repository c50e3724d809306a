import { availableParallelism } from 'node:os';
import {
  PLAIN_LOADER,
  createExpertSlots,
  expertSlotBytes,
  type Device,
  type ExpertShape,
  type LoaderOptions,
} from '../../native/index.js';
import type { NodeSettings } from '../../shared/config/node-settings.js';
import type { Logger } from '../../shared/log/index.js';
import { allExperts, partSizes } from '../../shared/model/part-sizes.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import type { ActivationCounts } from '../../shared/planner/activation-counts.js';
import { entriesOf, NO_CAPACITIES, type EntryBytes } from '../../shared/planner/index.js';
import type { WorkerSlots } from '../executor/expert-service.js';
import { planSlots, type SlotPlan } from '../loader/plan-slots.js';
import { ExpertCache } from './expert-cache.js';
import { planForMachine, planFullExperts, poolBytes, requirePools, type CachePlan } from './plan-cache.js';
import { profileLoading } from './profile-loading.js';

/** Threads beyond these would only take the processor from those who execute. */
const MOST_AUTOMATIC_THREADS = 8;

/** What slots are made of, and for whom. */
export interface SlotMaterial {
  device: Device;
  source: ModelSource;
  settings: NodeSettings;
  /** What this worker was asked for in earlier runs; null: it is to keep nothing. */
  counts: ActivationCounts | null;
  log: Logger;
}

/** What a slot is for, and what it and the entries beside it take. */
interface SlotSizes {
  shape: ExpertShape;
  loader: LoaderOptions;
  entryBytes: EntryBytes;
}

/**
 * The slots of a worker and the pools of its cache, all within the device's budget. Throws DEVICE_OUT_OF_MEMORY when that holds not
 * one expert, or not the pools that were asked for.
 */
export async function makeWorkerSlots(material: SlotMaterial): Promise<WorkerSlots> {
  const { device, counts } = material;
  const sizes = slotSizes(material);
  const { shape, loader } = sizes;
  const plan = planMemory(material, sizes);
  const kept = counts === null ? null : await planCache(material, sizes, plan.cacheBytes, counts);
  const entries = entriesOf(kept?.capacities ?? NO_CAPACITIES);
  const slots = createExpertSlots(device, shape, plan.slots + entries.full, plan.maxRows, {
    ...loader,
    exponentEntries: entries.exponent,
    signMantissaEntries: entries.signMantissa,
  });
  const cache = kept === null || counts === null ? null : makeCache(material, kept, counts);
  return { slots, maxRows: plan.maxRows, decompressionThreads: loader.decompressionThreads, cache };
}

function slotSizes({ source, settings }: SlotMaterial): SlotSizes {
  const { hiddenSize, intermediateSize } = source.shape;
  const shape: ExpertShape = { hiddenSize, intermediateSize, format: source.shippedFormat };
  const { decompressionThreads, directIo } = settings.worker;
  const automaticThreads = Math.min(MOST_AUTOMATIC_THREADS, Math.max(1, Math.floor(availableParallelism() / 2)));
  const loader: LoaderOptions = {
    ...PLAIN_LOADER,
    ...partSizes(allExperts(source)),
    decompressionThreads: decompressionThreads === 0 ? automaticThreads : decompressionThreads,
    directIo,
  };
  const { slotBytes, exponentEntryBytes, signMantissaEntryBytes } = expertSlotBytes(shape, 1, loader);
  const entryBytes = { full: slotBytes, exponent: exponentEntryBytes, signMantissa: signMantissaEntryBytes };
  return { shape, loader, entryBytes };
}

function planMemory({ device, settings, log }: SlotMaterial, { shape, loader, entryBytes }: SlotSizes): SlotPlan {
  const { slots, cacheBytes, pools } = settings.worker;
  const { budgetBytes, usedBytes } = device.info();
  const wanted: SlotPlan = {
    slots,
    maxRows: settings.main.miniBatchRows,
    cacheBytes: pools === null ? cacheBytes : poolBytes(pools, entryBytes),
  };
  const freeBytes = budgetBytes === 0 ? null : budgetBytes - usedBytes;
  const plan = planSlots(wanted, freeBytes, (maxRows) => expertSlotBytes(shape, maxRows, loader));
  if (pools !== null) requirePools(wanted.cacheBytes, plan.cacheBytes, plan.slots);
  if (plan.slots < wanted.slots || plan.maxRows < wanted.maxRows || plan.cacheBytes < wanted.cacheBytes) {
    log.warn('the memory budget holds less than was asked for', { budgetBytes, wanted, plan });
  }
  return plan;
}

async function planCache(
  { device, source, settings, log }: SlotMaterial,
  sizes: SlotSizes,
  budgetBytes: number,
  counts: ActivationCounts,
): Promise<CachePlan> {
  const { cachePolicy: policy, pools } = settings.worker;
  const { groupSize } = settings.placement;
  const { layers, experts, expertsPerToken } = source.shape;
  const activated = groupSize === 'auto' ? 1 : Math.ceil(expertsPerToken / groupSize);
  const request = { budgetBytes, entryBytes: sizes.entryBytes, layers, experts, activated, counts };
  const written = pools === null ? null : { capacities: pools, usedBytes: budgetBytes, expected: null };
  const profile = written !== null || policy !== 'planned' ? null : await profileLoading(device, source, sizes, log);
  const plan = written ?? (profile === null ? planFullExperts(request) : planForMachine(request, profile));
  log.info('cache planned', {
    ...{ policy, budgetBytes, ...plan, recordedActivations: counts.total, profile },
  });
  return plan;
}

function makeCache({ source, settings }: SlotMaterial, plan: CachePlan, counts: ActivationCounts): ExpertCache {
  return new ExpertCache({
    ...{ policy: settings.worker.cachePolicy, experts: source.shape.experts, counts, random: Math.random },
    ...{ capacities: plan.capacities, bytes: plan.usedBytes },
  });
}
