import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';
import type { EnergyCounter } from './energy-counter.js';
import { GpuPower } from './gpu-power.js';
import { findLinuxCounters, SYSTEM_FILES, type EnergyFiles } from './linux-counters.js';

const SAMPLE_MS = 100;
const MS_PER_S = 1000;

/** Energy that the machine took while something ran. Everything that ran beside it is in it. */
export interface MeasuredEnergy {
  readonly joules: number;
  readonly seconds: number;
  /** Parts of the machine, which do not overlap. */
  readonly counters: readonly { readonly name: string; readonly joules: number }[];
  /** Counters that the machine has, and why they could not be read. */
  readonly missing: readonly string[];
}

/** Adds up the energy of this machine until it is closed. */
export class EnergyMeter {
  readonly #counters: readonly EnergyCounter[];
  readonly #startedMs: number;
  readonly #timer: Timer | null;
  #problems: readonly string[];
  #broken = false;

  constructor(
    private readonly runtime: Pick<Runtime, 'nowMs' | 'every'>,
    files: EnergyFiles,
    private readonly gpus: Pick<GpuPower, 'counters' | 'close'>,
  ) {
    const { counters, problems } = findLinuxCounters(files);
    this.#counters = [...counters, ...gpus.counters];
    this.#problems = problems;
    this.#startedMs = runtime.nowMs();
    this.#sample();
    this.#timer = this.#counters.length === 0 ? null : runtime.every(SAMPLE_MS, () => this.#sample());
    this.#timer?.unref();
  }

  static ofSystem(): EnergyMeter {
    return new EnergyMeter(new WallRuntime(), SYSTEM_FILES, GpuPower.open());
  }

  /** Energy since the meter was made. Null: not measured. */
  read(): MeasuredEnergy | null {
    this.#sample();
    if (this.#counters.length === 0 || this.#broken) return null;
    const counters = this.#counters.map(({ name, joules }) => ({ name, joules }));
    return {
      joules: counters.reduce((sum, { joules }) => sum + joules, 0),
      seconds: (this.runtime.nowMs() - this.#startedMs) / MS_PER_S,
      counters,
      missing: this.#problems,
    };
  }

  /** Joules since the meter was made. Null: not measured. */
  joules(): number | null {
    return this.read()?.joules ?? null;
  }

  /** Why nothing is measured, where read() gives null. */
  get reason(): string {
    return this.#problems.length === 0 ? 'no counter' : this.#problems.join('; ');
  }

  /** Idempotent. */
  close(): void {
    this.#timer?.cancel();
    this.gpus.close();
  }

  #sample(): void {
    if (this.#broken) return;
    try {
      const nowMs = this.runtime.nowMs();
      for (const counter of this.#counters) counter.sample(nowMs);
    } catch (thrown) {
      this.#broken = true;
      this.#problems = [...this.#problems, thrown instanceof Error ? thrown.message : String(thrown)];
    }
  }
}

/** One line. `energy`: what the meter has read. */
export function energyText(energy: MeasuredEnergy | null, reason: string): string {
  if (energy === null) return `energy: not measured: ${reason}`;
  const { joules, seconds, counters, missing } = energy;
  const parts = counters.map((counter) => `${counter.name} ${counter.joules.toFixed(1)} J`);
  const without = missing.length === 0 ? '' : `; without what cannot be read: ${missing.join('; ')}`;
  return `measured energy: ${joules.toFixed(1)} J in ${seconds.toFixed(1)} s (${parts.join(', ')})${without}`;
}
