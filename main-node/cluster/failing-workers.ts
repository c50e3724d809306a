import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { PeerProblem } from '../../shared/wire/messages.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';
import type { WorkerLink } from './worker-link.js';

/** Experts that a worker may answer with errors, one after another, before others are asked instead for a while. */
export const MAX_FAILURES_IN_A_ROW = 32;
/** For how long at first; each time that it fails again at once, for twice as long. */
export const FIRST_REST_MS = 5000;
export const LONGEST_REST_MS = 60_000;

/** Errors that say nothing against the worker, or that others count. */
const NO_FAULT: ReadonlySet<string> = new Set<ErrorCode>([
  ...(['STALE_EPOCH', 'CANCELLED', 'PACK_CORRUPT', 'PACK_INCOMPLETE', 'DEVICE_LOST', 'WORKER_LOST'] as const),
]);

interface Record {
  inRow: number;
  /** Of its next rest. */
  restMs: number;
  code: string;
  message: string;
  /** Runs while it rests. */
  timer: Timer | null;
}

/** Workers that answer with errors only, and which of them main does without for a while. */
export class FailingWorkers {
  private readonly records = new Map<WorkerLink, Record>();

  /** `onRested`: the worker is to be tried again. */
  constructor(
    private readonly runtime: Runtime,
    private readonly onRested: (link: WorkerLink) => void,
  ) {}

  /** Connected and not placed. */
  get unplaced(): WorkerLink[] {
    return [...this.records].flatMap(([link, { timer }]) => (timer === null ? [] : [link]));
  }

  /** True: so often in a row that others are to be asked instead. */
  failed(link: WorkerLink, code: string, message: string): boolean {
    if (NO_FAULT.has(code)) return false;
    const record = this.records.get(link) ?? { inRow: 0, restMs: FIRST_REST_MS, code, message, timer: null };
    this.records.set(link, record);
    record.inRow += 1;
    Object.assign(record, { code, message });
    return record.timer === null && record.inRow >= MAX_FAILURES_IN_A_ROW;
  }

  /** It has run an expert. */
  succeeded(link: WorkerLink): void {
    if (this.records.get(link)?.timer === null) this.records.delete(link);
  }

  /** It is not placed until its rest is over. Then one failure more is enough for the next, longer one. */
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

  /** True: it was set aside. */
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
