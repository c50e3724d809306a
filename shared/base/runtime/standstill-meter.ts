import type { Runtime, Timer } from './runtime.js';

/** Interval at which a process checks that its timer fires in time. */
export const PROBE_INTERVAL_MS = 100;
/** Shortest time that a standstill is remembered; the longest is twice that. */
export const REMEMBERED_MS = 15_000;

/** The longest recent standstill of this process: its event loop was busy, its machine was, or it was stopped. */
export class StandstillMeter {
  private readonly timer: Timer;
  private lookedMs: number;
  private periodEndMs: number;
  private longestMs = 0;
  private longestBeforeMs = 0;

  constructor(private readonly runtime: Pick<Runtime, 'nowMs' | 'every'>) {
    this.lookedMs = runtime.nowMs();
    this.periodEndMs = this.lookedMs + REMEMBERED_MS;
    this.timer = runtime.every(PROBE_INTERVAL_MS, () => this.look());
    this.timer.unref();
  }

  get recentMs(): number {
    this.look();
    return Math.max(this.longestMs, this.longestBeforeMs);
  }

  stop(): void {
    this.timer.cancel();
  }

  private look(): void {
    const nowMs = this.runtime.nowMs();
    if (nowMs >= this.periodEndMs) {
      this.longestBeforeMs = nowMs - this.periodEndMs < REMEMBERED_MS ? this.longestMs : 0;
      this.longestMs = 0;
      this.periodEndMs = nowMs + REMEMBERED_MS;
    }
    this.longestMs = Math.max(this.longestMs, nowMs - this.lookedMs - PROBE_INTERVAL_MS);
    this.lookedMs = nowMs;
  }
}
