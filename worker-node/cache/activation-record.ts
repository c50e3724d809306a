import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';
import { readActivationCounts, writeActivationCounts } from '../../engine/planning/activation-counts-file.js';

/** How often counts that have changed are written. */
export const RECORD_INTERVAL_MS = 30_000;

/**
 * Which experts this worker was asked for how often, over its runs: numbers by layer and expert, nothing of what was said. A file
 * that cannot be read or written costs the record, not the service.
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

  /** `model`: what counts must be of to be taken up. */
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

  /** Never rejects. One write after the other; nothing is written that is on the disk already. */
  write(): Promise<void> {
    this.writing = this.writing.then(() => this.writeChanges());
    return this.writing;
  }

  /** Writes what is new for the last time. */
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
