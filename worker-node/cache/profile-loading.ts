import {
  FROM_STORAGE,
  createExpertSlots,
  type Device,
  type ExpertShape,
  type LoaderOptions,
} from '../../native/index.js';
import { toOdmoeError } from '../../shared/errors/index.js';
import type { Logger } from '../../shared/log/index.js';
import { RunningMean } from '../../shared/metrics/index.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import { LoadCosts } from '../loader/load-costs.js';
import type { MachineProfile } from './plan-cache.js';

/** Experts that are loaded to see what that costs, and how long that may take before the next one is not begun. */
const PROFILED_EXPERTS = 8;
const PROFILE_LIMIT_MS = 1500;

/**
 * Loads and executes a few experts of the pack, from all over it. Null, with a line in the log, when none can be loaded: experts that
 * are still to be fetched, a damaged pack.
 */
export async function profileLoading(
  device: Device,
  source: ModelSource,
  { shape, loader }: { shape: ExpertShape; loader: LoaderOptions },
  log: Logger,
): Promise<MachineProfile | null> {
  const slots = createExpertSlots(device, shape, 1, 1, { ...loader, exponentEntries: 0, signMantissaEntries: 0 });
  const costs = new LoadCosts(source.expert(0, 0), loader.decompressionThreads);
  const executeMs = new RunningMean();
  const hidden = new Uint8Array(shape.hiddenSize * Float32Array.BYTES_PER_ELEMENT);
  const beganMs = performance.now();
  const { layers, experts } = source.shape;
  let measured = 0;
  try {
    for (let index = 0; index < PROFILED_EXPERTS && performance.now() - beganMs < PROFILE_LIMIT_MS; index++) {
      const place = Math.floor((index * layers * experts) / PROFILED_EXPERTS);
      const outcome = await slots.load(0, source.expert(Math.floor(place / experts), place % experts), FROM_STORAGE);
      costs.add(FROM_STORAGE, outcome);
      executeMs.add((await slots.execute(0, 1, hidden, hidden.slice())).executeMs);
      measured += 1;
    }
  } catch (thrown) {
    log.warn('loading could not be measured', { measured, error: toOdmoeError(thrown) });
  } finally {
    slots.dispose();
  }
  return measured === 0 ? null : { load: costs.profile, executeMs: executeMs.mean };
}
