import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { PeerProblem } from '../../shared/wire/messages.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';
import type { WorkerLink } from './worker-link.js';

/** Number of experts that a worker may answer with errors, one after another, before other workers are asked instead for a while. */
export const MAX_FAILURES_IN_A_ROW = 32;
/** First pause of such a worker, and the longest: each time that it fails again at once, the pause doubles. */
export const FIRST_PAUSE_MS = 5000;
export const LONGEST_REST_MS = 60_000;

/** Errors that are not the worker's fault, or that are counted elsewhere. */
const NO_FAULT: ReadonlySet<string> = new Set<ErrorCode>([
  ...(['STALE_EPOCH', 'CANCELLED', 'PACK_CORRUPT', 'PACK_INCOMPLETE', 'DEVICE_LOST', 'WORKER_LOST'] as const),
]);

interface Record {
  inRow: number;
  /** Length of its next pause. */
  restMs: number;
  code: string;
  message: string;
  /** Runs during its pause. */
  timer: Timer | null;
}

/** Workers that answer with nothing but errors; main does not use those of them that are in a pause. */
export class FailingWorkers {
  private readonly records = new Map<WorkerLink, Record>();

  /** `onRested`: the pause is over, and the worker is to be tried again. */
  constructor(
    private readonly runtime: Runtime,
    private readonly onRested: (link: WorkerLink) => void,
  ) {}

  /** Workers that are connected and not placed. */
  get unplaced(): WorkerLink[] {
    return [...this.records].flatMap(([link, { timer }]) => (timer === null ? [] : [link]));
  }

  /** Returns true if it failed so often in a row that other workers are to be asked instead. */
  failed(link: WorkerLink, code: string, message: string): boolean {
    if (NO_FAULT.has(code)) return false;
    const record = this.records.get(link) ?? { inRow: 0, restMs: FIRST_PAUSE_MS, code, message, timer: null };
    this.records.set(link, record);
    record.inRow += 1;
    Object.assign(record, { code, message });
    return record.timer === null && record.inRow >= MAX_FAILURES_IN_A_ROW;
  }

  /** The worker has run an expert. */
  succeeded(link: WorkerLink): void {
    if (this.records.get(link)?.timer === null) this.records.delete(link);
  }

  /** Begins the worker's pause. The worker is not placed until the pause ends. After that, one more failure is enough for the next, longer pause. */
  rest(link: WorkerLink): number {
    const record = this.records.get(link);
    if (record === undefined) return 0;
    const { restMs } = record;
    record.restMs = Math.min(LONGEST_REST_MS, 2 * restMs);
    record.inRow = MAX_FAILURES_IN_A_ROW - 1;
    record.timer = this.runtime.after(restMs, () => {
      record.timer = null;
      this.onRested(link);
    });
    return restMs;
  }

  /** Returns true if the worker was set aside. */
  remove(link: WorkerLink): boolean {
    const timer = this.records.get(link)?.timer ?? null;
    timer?.cancel();
    this.records.delete(link);
    return timer !== null;
  }

  problems(): PeerProblem[] {
    return [...this.records].flatMap(([{ id, address }, { timer, code, message }]) => {
      if (timer === null) return [];
      const what = `${MAX_FAILURES_IN_A_ROW} experts in a row failed there, the last one so: ${message}`;
      return [{ address, id, code, message: `${what}; it is left alone for a while, and tried again` }];
    });
  }

  stop(): void {
    for (const { timer } of this.records.values()) timer?.cancel();
  }
}
