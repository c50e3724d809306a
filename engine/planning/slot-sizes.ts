import { availableParallelism } from 'node:os';
import { PLAIN_LOADER, type Device, type ExpertShape, type LoaderOptions } from '../../native/index.js';
import { allExperts, partSizes } from '../../shared/model/part-sizes.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import type { PerEntryKind } from '../../shared/decisions/caching/pool-capacities.js';

/** More threads than this would only take processor time from the executions. */
const MOST_AUTOMATIC_THREADS = 8;

/** Sizes and options of the slots for a model's experts. */
export interface SlotSizes {
  shape: ExpertShape;
  /** Options without entries. */
  loader: LoaderOptions;
  /** Bytes of a slot and of an entry of each kind, as the device counts them. */
  entryBytes: PerEntryKind<number>;
}

export interface LoaderSettings {
  /** 0: half of the processors, at most 8. */
  decompressionThreads: number;
  directIo: boolean;
  /** 0: no limit beside the storage. */
  storageBytesPerS: number;
  /** Reads in flight at the same time. Left out: one. */
  readDepth?: number;
}

/** Sizes of slots and cache entries, and the loader's options, for the experts of a model. */
export function slotSizes(device: Device, source: ModelSource, settings: LoaderSettings): SlotSizes {
  const { hiddenSize, expert, expertLayers, experts } = source.shape;
  const shape: ExpertShape = { hiddenSize, glu: expert, format: source.shippedFormat };
  const automaticThreads = Math.min(MOST_AUTOMATIC_THREADS, Math.max(1, Math.floor(availableParallelism() / 2)));
  const loader: LoaderOptions = {
    ...PLAIN_LOADER,
    ...partSizes(allExperts(source)),
    ...settings,
    experts: expertLayers * experts,
    decompressionThreads: settings.decompressionThreads === 0 ? automaticThreads : settings.decompressionThreads,
  };
  const { slotBytes, entryBytes } = device.expertSlotBytes(shape, 1, loader);
  return { shape, loader, entryBytes: { full: slotBytes, ...entryBytes } };
}
