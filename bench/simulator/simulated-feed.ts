import { RIGHT_TOKEN } from './simulated-shadow.js';
import { MAIN, SHADOW, type SimulatedCluster } from './simulated-cluster.js';

/** Largest message of key and value rows, as the daemon's. */
const KEY_VALUE_MESSAGE_BYTES = 1024 * 1024;

/** What main tells shadow of a sequence: tokens, and the key and value rows that are due (OD-MoE section 3.2). */
export class SimulatedFeed {
  readonly #due: number[];
  readonly #sent: number[];

  constructor(
    private readonly cluster: SimulatedCluster,
    private readonly promptTokens: number,
  ) {
    this.#due = new Array<number>(cluster.trace.layers).fill(0);
    this.#sent = new Array<number>(cluster.trace.layers).fill(0);
  }

  begin(): void {
    const { shadow, network } = this.cluster;
    if (shadow !== null) network.send(MAIN, SHADOW, 0, () => shadow.begin());
  }

  /** `rows`: of the pass that begins at the position; 0: none does yet. `branch`: drafts that proved wrong so far. */
  token(position: number, rows: number, nextRows: number, branch: number): void {
    const { shadow, network } = this.cluster;
    if (shadow === null) return;
    const token = { position, tokenId: RIGHT_TOKEN, rows, nextRows, branch };
    network.send(MAIN, SHADOW, 0, () => shadow.announce(token));
  }

  /** Main goes back: rows from this position on will be written again. */
  truncated(position: number): void {
    for (const layer of this.#sent.keys()) {
      this.#sent[layer] = Math.min(this.#sent[layer] ?? 0, position);
      this.#due[layer] = Math.min(this.#due[layer] ?? 0, position);
    }
  }

  /** The layer's rows below `written` exist: those that are due leave, at once or when the pass has ended. */
  layerWritten(layer: number, written: number): void {
    const { keyValuePeriod, streamKeyValues } = this.cluster.setUp.align;
    if (this.cluster.shadow === null || keyValuePeriod === 0) return;
    const iteration = written - this.promptTokens;
    if (iteration <= 0) this.#due[layer] = written;
    else this.#due[layer] = Math.max(this.#due[layer] ?? 0, written - (iteration % keyValuePeriod));
    if (iteration <= 0 || streamKeyValues) this.#send(layer);
  }

  passEnded(): void {
    if (this.cluster.shadow === null) return;
    for (const layer of this.#due.keys()) this.#send(layer);
  }

  #send(layer: number): void {
    const { times, network } = this.cluster;
    const rowBytes = times.main.keyValueRowBytes;
    const rowsPerMessage = Math.max(1, Math.floor(KEY_VALUE_MESSAGE_BYTES / rowBytes));
    const due = this.#due[layer] ?? 0;
    let position = this.#sent[layer] ?? 0;
    while (position < due) {
      const rows = Math.min(rowsPerMessage, due - position);
      const subject = { position: due - 1, layer, expert: -1 };
      network.send(MAIN, SHADOW, rows * rowBytes, () => undefined, subject);
      position += rows;
    }
    this.#sent[layer] = Math.max(position, this.#sent[layer] ?? 0);
  }
}
