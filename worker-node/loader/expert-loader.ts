import { FROM_STORAGE, type ExpertSlots } from '../../native/index.js';
import { OdmoeError, toOdmoeError } from '../../shared/errors/index.js';
import type { Logger } from '../../shared/log/index.js';
import { RunningMean } from '../../shared/metrics/index.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';

/** Brings experts to the disk that are not there yet. */
export interface ExpertSupply {
  /** Null when the expert is there. Rejects with CANCELLED when the signal aborts, else with why it does not come. */
  awaitExpert(layer: number, expert: number, signal: AbortSignal): Promise<void> | null;
}

export type LoadResult = { outcome: 'loaded' | 'cancelled' } | { outcome: 'failed'; error: OdmoeError };

/** Carries out the loads that the schedule orders, and counts them. */
export class ExpertLoader {
  readonly #slots: ExpertSlots;
  readonly #source: ModelSource;
  readonly #supply: ExpertSupply | null;
  readonly #log: Logger;
  /** Slots whose load waits for its expert to come. */
  readonly #awaiting = new Map<number, AbortController>();
  readonly #loadMs = new RunningMean();
  #loads = 0;
  #readBytes = 0;
  /** Code of the failure that each expert not loaded since has been logged with. */
  readonly #failures = new Map<string, string>();

  /** `supply`: null where every expert is on the disk. */
  constructor(slots: ExpertSlots, source: ModelSource, log: Logger, supply: ExpertSupply | null = null) {
    this.#slots = slots;
    this.#source = source;
    this.#supply = supply;
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
      const arrival = this.#arrival(slot, layer, expert);
      if (arrival !== null && !(await arrival)) return { outcome: 'cancelled' };
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

  /** Null when the expert is there; else resolves when it is, to false when the load was cancelled before. */
  #arrival(slot: number, layer: number, expert: number): Promise<boolean> | null {
    const cancelled = new AbortController();
    const arrival = this.#supply?.awaitExpert(layer, expert, cancelled.signal) ?? null;
    if (arrival === null) return null;
    this.#awaiting.set(slot, cancelled);
    return arrival
      .then(
        () => !cancelled.signal.aborted,
        (thrown: unknown) => {
          if (cancelled.signal.aborted) return false;
          throw thrown;
        },
      )
      .finally(() => this.#awaiting.delete(slot));
  }

  /** Once until the expert can be loaded again: a damaged pack fails at every token. */
  #report(layer: number, expert: number, error: OdmoeError): void {
    const key = `${layer} ${expert}`;
    if (this.#failures.get(key) === error.code) return;
    this.#failures.set(key, error.code);
    this.#log.error('loading an expert failed', { layer, expert, error });
  }

  cancel(slot: number): void {
    const awaiting = this.#awaiting.get(slot);
    if (awaiting === undefined) this.#slots.cancel(slot);
    else awaiting.abort();
  }
}
