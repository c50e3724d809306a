import type { Timing } from '../../shared/rpc/messages.js';

/** Times one request as the measures are defined: TTFT from its arrival, TPOT over the later tokens. */
export class RequestClock {
  private readonly arrivedMs: number;
  private startedMs: number;
  private firstTokenMs: number | null = null;
  private lastTokenMs: number;
  private tokens = 0;

  /** `now`: a monotonic clock in milliseconds. */
  constructor(private readonly now: () => number) {
    this.arrivedMs = now();
    this.startedMs = this.arrivedMs;
    this.lastTokenMs = this.arrivedMs;
  }

  /** The request has left the queue. */
  started(): void {
    this.startedMs = this.now();
  }

  token(): void {
    this.lastTokenMs = this.now();
    this.firstTokenMs ??= this.lastTokenMs;
    this.tokens += 1;
  }

  timing(ioStallMs: number): Timing {
    const firstTokenMs = this.firstTokenMs ?? this.arrivedMs;
    const tpotMs = this.tokens > 1 ? (this.lastTokenMs - firstTokenMs) / (this.tokens - 1) : 0;
    const totalMs = this.lastTokenMs - this.arrivedMs;
    return {
      ttftMs: firstTokenMs - this.arrivedMs,
      tpotMs,
      decodeTokensPerS: tpotMs > 0 ? 1000 / tpotMs : 0,
      outputTokensPerS: totalMs > 0 ? (this.tokens * 1000) / totalMs : 0,
      queuedMs: this.startedMs - this.arrivedMs,
      ioStallMs,
    };
  }
}
