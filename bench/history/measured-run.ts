import { printableJson } from '../../shared/base/text/printable-text.js';
import { standardOutput } from '../../shared/base/text/text-output.js';

/** The figures of the benchmark that runs in this process: prints them, and keeps them for `--record`. */
export class MeasuredRun {
  readonly #write: (text: string) => void;
  #figures: unknown = null;

  constructor(write: (text: string) => void = (text) => void standardOutput.write(text)) {
    this.#write = write;
  }

  /** `figures`: what `--json` prints. `text`: the same for people, with a newline at its end. */
  print(figures: unknown, isJson: boolean, text: () => string): void {
    this.#figures = figures;
    this.#write(isJson ? `${printableJson(figures)}\n` : text());
  }

  /** Null: nothing has been printed. */
  get figures(): unknown {
    return this.#figures;
  }
}
