import { availableParallelism } from 'node:os';
import { PLAIN_LOADER, type Device, type ExpertShape, type LoaderOptions } from '../../native/index.js';
import { expertShape } from '../loading/expert-shape.js';
import { allExperts, partSizes } from '../../shared/model/part-sizes.js';
import type { ExpertSource, ModelSource, SlicedSplit } from '../../shared/model/tensor-source.js';
import type { PerEntryKind } from '../../shared/decisions/caching/pool-capacities.js';

/** More threads than this would only take processor time from the executions. */
const MOST_AUTOMATIC_THREADS = 8;

/** Sizes and options of the slots for a model's experts. */
export interface SlotSizes {
  shape: ExpertShape;
  /** Options without entries. */
  loader: LoaderOptions;
  /** Bytes of a slot with all that is loaded into it, and of an entry of each kind, as the device counts them. */
  entryBytes: PerEntryKind<number>;
  /** Bytes of them for lower slices; null: none are loaded. */
  lowerBytes: number | null;
}

/** The slices of experts that are loaded. */
export interface LoadedSlices {
  split: SlicedSplit;
  lower: boolean;
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

/**
 * Sizes of slots and cache entries, and the loader's options, for the experts of a model. `sliced`: null if the source gives the experts as they
 * were shipped. `head`: a head whose experts the slots hold, too; its experts have forms of the model's.
 */
export function slotSizes(
  device: Device,
  source: ModelSource,
  settings: LoaderSettings,
  sliced: LoadedSlices | null = null,
  head: ModelSource | null = null,
): SlotSizes {
  const { expertLayers, experts } = source.shape;
  const shape = expertShape(source.shape, sliced?.split ?? null, () => allExperts(source));
  const automaticThreads = Math.min(MOST_AUTOMATIC_THREADS, Math.max(1, Math.floor(availableParallelism() / 2)));
  const loader: LoaderOptions = {
    ...PLAIN_LOADER,
    ...partSizes(withExpertsOf(source, head)),
    ...settings,
    experts: (expertLayers + (head === null ? 0 : 1)) * experts,
    decompressionThreads: settings.decompressionThreads === 0 ? automaticThreads : settings.decompressionThreads,
  };
  const { slotBytes, entryBytes, ...bytes } = device.expertSlotBytes(shape, 1, loader);
  const lowerBytes = sliced?.lower === true ? bytes.lowerBytes : null;
  return { shape, loader, entryBytes: { full: slotBytes + (lowerBytes ?? 0), ...entryBytes }, lowerBytes };
}

function* withExpertsOf(source: ModelSource, head: ModelSource | null): Generator<ExpertSource> {
  yield* allExperts(source);
  if (head !== null) yield* allExperts(head);
}
