import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';
import { readActivationCounts, writeActivationCounts } from '../../engine/planning/activation-counts-file.js';

/** The interval at which changed counts are written. */
export const RECORD_INTERVAL_MS = 30_000;

/**
 * Counts how often main asked this worker for each expert, over all its runs: numbers by layer and expert, and no content of any request. If
 * the file cannot be read or written, the record is lost; the worker still serves.
 */
export class ActivationRecord {
  private readonly timer: Timer;
  private recorded: number;
  private writing: Promise<void> = Promise.resolve();
  private reported: string | null = null;

  private constructor(
    readonly counts: ActivationCounts,
    private readonly path: string,
    private readonly runtime: Runtime,
    private readonly log: Logger,
  ) {
    this.recorded = counts.total;
    this.timer = runtime.every(RECORD_INTERVAL_MS, () => void this.write());
    this.timer.unref();
  }

  /** `model`: recorded counts are used only if they belong to this pack and this number of experts. */
  static async open(
    path: string,
    model: { packDigest: string; experts: number },
    runtime: Runtime,
    log: Logger,
  ): Promise<ActivationRecord> {
    const { counts, problem } = await runtime.outside(() => readActivationCounts(path, model));
    if (problem !== null) log.warn('recorded activation counts are not used; counting begins anew', { problem });
    return new ActivationRecord(counts ?? new ActivationCounts(model.packDigest, model.experts), path, runtime, log);
  }

  /** Never rejects. Writes run one after the other; unchanged counts are not written again. */
  write(): Promise<void> {
    this.writing = this.writing.then(() => this.writeChanges());
    return this.writing;
  }

  /** Writes the latest changes a last time. */
  async close(): Promise<void> {
    this.timer.cancel();
    await this.write();
  }

  private async writeChanges(): Promise<void> {
    const { total } = this.counts;
    if (total === this.recorded) return;
    try {
      await this.runtime.outside(() => writeActivationCounts(this.path, this.counts));
      this.recorded = total;
      this.reported = null;
    } catch (thrown) {
      const error = toOdmoeError(thrown);
      if (this.reported !== error.code) this.log.warn('activation counts could not be recorded', { error });
      this.reported = error.code;
    }
  }
}
