import type { Timing } from '../../shared/wire/messages.js';

/**
 * The times of one answer, by the given clock. TTFT: from the request's arrival to the first token; TPOT: mean time of each later token; decode
 * throughput: 1 / TPOT; output throughput: tokens divided by the whole time since the arrival.
 */
export class GenerationTiming {
  private startedAtMs: number;
  private firstTokenAtMs = 0;
  private lastTokenAtMs = 0;
  private tokens = 0;
  private ioStallMs = 0;

  constructor(
    private readonly nowMs: () => number,
    private readonly arrivedAtMs: number = nowMs(),
  ) {
    this.startedAtMs = arrivedAtMs;
  }

  /** The request leaves the queue. */
  start(): void {
    this.startedAtMs = this.nowMs();
  }

  /** A token was chosen. */
  token(): void {
    this.lastTokenAtMs = this.nowMs();
    if (this.tokens === 0) this.firstTokenAtMs = this.lastTokenAtMs;
    this.tokens++;
  }

  /** The answer waited for an expert that was not loaded. */
  stall(durationMs: number): void {
    this.ioStallMs += durationMs;
  }

  result(): Timing {
    const ttftMs = this.tokens === 0 ? 0 : this.firstTokenAtMs - this.arrivedAtMs;
    const tpotMs = this.tokens < 2 ? 0 : (this.lastTokenAtMs - this.firstTokenAtMs) / (this.tokens - 1);
    const wholeMs = this.lastTokenAtMs - this.arrivedAtMs;
    return {
      ttftMs,
      tpotMs,
      decodeTokensPerS: tpotMs > 0 ? 1000 / tpotMs : 0,
      outputTokensPerS: wholeMs > 0 ? (this.tokens * 1000) / wholeMs : 0,
      queuedMs: this.startedAtMs - this.arrivedAtMs,
      ioStallMs: this.ioStallMs,
    };
  }
}
