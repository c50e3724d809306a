import { printableJson } from '../../shared/base/text/printable-text.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { EnergyMeter, energyText, type MeasuredEnergy } from '../energy/energy-meter.js';

/** The figures of the benchmark that runs in this process: prints them, and keeps them for `--record`. */
export class MeasuredRun {
  readonly #write: (text: string) => void;
  readonly #openMeter: () => EnergyMeter;
  #figures: unknown = null;
  #energy: MeasuredEnergy | null = null;
  #energyText: string | null = null;

  constructor(
    write: (text: string) => void = (text) => void standardOutput.write(text),
    openMeter: () => EnergyMeter = () => EnergyMeter.ofSystem(),
  ) {
    this.#write = write;
    this.#openMeter = openMeter;
  }

  /** Measures the energy that this machine takes for `work`, where it has counters. Figures that are printed later have it beside them. */
  async withEnergy<Result>(work: (meter: EnergyMeter) => Promise<Result>): Promise<Result> {
    const meter = this.#openMeter();
    try {
      const result = await work(meter);
      this.#energy = meter.read();
      this.#energyText = energyText(this.#energy, meter.reason);
      return result;
    } finally {
      meter.close();
    }
  }

  /** `figures`: what `--json` prints. `text`: the same for people, with a newline at its end. */
  print(figures: unknown, isJson: boolean, text: () => string): void {
    this.#figures = figures;
    const energy = this.#energyText === null ? '' : `\n${this.#energyText}\n`;
    this.#write(isJson ? `${printableJson(figures)}\n` : `${text()}${energy}`);
  }

  /** Null: nothing has been printed. */
  get figures(): unknown {
    return this.#figures;
  }

  /** Null: it was not measured. */
  get energy(): MeasuredEnergy | null {
    return this.#energy;
  }
}
