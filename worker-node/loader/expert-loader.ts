import { FROM_STORAGE, type ExpertSlots } from '../../native/index.js';
import { OdmoeError, toOdmoeError } from '../../shared/errors/index.js';
import type { Logger } from '../../shared/log/index.js';
import { RunningMean } from '../../shared/metrics/index.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';

export type LoadResult = { outcome: 'loaded' | 'cancelled' } | { outcome: 'failed'; error: OdmoeError };

/** Carries out the loads that the schedule orders, and counts them. */
export class ExpertLoader {
  readonly #slots: ExpertSlots;
  readonly #source: ModelSource;
  readonly #log: Logger;
  readonly #loadMs = new RunningMean();
  #loads = 0;
  #readBytes = 0;
  /** Code of the failure that each expert not loaded since has been logged with. */
  readonly #failures = new Map<string, string>();

  constructor(slots: ExpertSlots, source: ModelSource, log: Logger) {
    this.#slots = slots;
    this.#source = source;
    this.#log = log;
  }

  get loads(): number {
    return this.#loads;
  }

  get storageReadBytes(): number {
    return this.#readBytes;
  }

  get loadMsMean(): number {
    return this.#loadMs.mean;
  }

  /** Never rejects: a failure is a result. */
  async load(slot: number, layer: number, expert: number): Promise<LoadResult> {
    try {
      const { loaded, readBytes, loadMs } = await this.#slots.load(
        slot,
        this.#source.expert(layer, expert),
        FROM_STORAGE,
      );
      this.#readBytes += readBytes;
      if (!loaded) return { outcome: 'cancelled' };
      this.#loads += 1;
      this.#failures.delete(`${layer} ${expert}`);
      this.#loadMs.add(loadMs);
      return { outcome: 'loaded' };
    } catch (thrown) {
      const { code, message } = toOdmoeError(thrown);
      const error = new OdmoeError(code, `Expert ${expert} of layer ${layer} could not be loaded: ${message}`, {
        cause: thrown,
      });
      this.#report(layer, expert, error);
      return { outcome: 'failed', error };
    }
  }

  /** Once until the expert can be loaded again: a damaged pack fails at every token. */
  #report(layer: number, expert: number, error: OdmoeError): void {
    const key = `${layer} ${expert}`;
    if (this.#failures.get(key) === error.code) return;
    this.#failures.set(key, error.code);
    this.#log.error('loading an expert failed', { layer, expert, error });
  }

  cancel(slot: number): void {
    this.#slots.cancel(slot);
  }
}
