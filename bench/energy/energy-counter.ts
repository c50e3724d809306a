/** Energy of one part of the machine. */
export interface EnergyCounter {
  readonly name: string;
  /** Joules from the first sample to the last one. */
  readonly joules: number;
  /** Reads the hardware. `nowMs`: of a clock that never goes back. Throws where the hardware cannot be read. */
  sample(nowMs: number): void;
}

export interface FoundCounters {
  /** Parts of the machine that do not overlap. */
  readonly counters: readonly EnergyCounter[];
  /** Why counters that are there cannot be used. */
  readonly problems: readonly string[];
}

const MS_PER_S = 1000;

/** Energy from samples of power: between two samples the power is their mean. */
export class PowerIntegral implements EnergyCounter {
  joules = 0;
  #last: { readonly ms: number; readonly watts: number } | null = null;

  /** `watts`: the power now. Throws where it cannot be read. */
  constructor(
    readonly name: string,
    private readonly watts: () => number,
  ) {}

  sample(nowMs: number): void {
    const now = { ms: nowMs, watts: this.watts() };
    if (this.#last !== null) {
      this.joules += ((now.watts + this.#last.watts) / 2) * ((now.ms - this.#last.ms) / MS_PER_S);
    }
    this.#last = now;
  }
}
