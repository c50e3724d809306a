import type { Pass, RouterChoice } from '../../native/index.js';

/** Most rows of a pass whose attention may run on the thread of the event loop. */
export const SHORT_PASS_ROWS = 4;
/** Longest estimated call, in ms, that runs there: clients and workers may have to wait that long. */
export const SHORT_CALL_MS = 1;
/** Number of calls that an estimate needs; with fewer there is no estimate. */
export const CALLS_OF_FORECAST = 8;

/** Estimates the duration of a call by the fastest of the last ones: on a machine that does other work, too, the slower ones have waited for a core. */
class CallTimes {
  private readonly lastMs: number[] = [];
  private calls = 0;

  took(durationMs: number): void {
    this.lastMs[this.calls++ % CALLS_OF_FORECAST] = durationMs;
  }

  get isShort(): boolean {
    return this.calls >= CALLS_OF_FORECAST && Math.min(...this.lastMs) <= SHORT_CALL_MS;
  }
}

type ShortPass = Pick<Pass, 'attend' | 'attendHere' | 'combine' | 'combineHere'>;

/**
 * Runs main's part of a layer on the thread of the event loop if that is estimated to be short: a hand-off to the device's thread and back costs two
 * wake-ups, and a layer has two hand-offs. The computed values are the same.
 */
export class ShortOperators {
  private readonly attends = new CallTimes();
  private readonly combines = new CallTimes();
  /** Times of `combine` at the last expert layer, which may run later layers, too. */
  private readonly endings = new CallTimes();

  constructor(
    private readonly expertLayers: number,
    private readonly nowMs: () => number,
  ) {}

  /** `awaitsMessages`: messages may come meanwhile that are needed right afterwards; the event loop stays free to take them. */
  async attend(
    pass: ShortPass,
    layer: number,
    hidden: Uint8Array,
    { rows, awaitsMessages }: { rows: number; awaitsMessages: boolean },
  ): Promise<RouterChoice> {
    if (pass.attendHere === undefined || rows > SHORT_PASS_ROWS) return pass.attend(layer, hidden);
    const begunMs = this.nowMs();
    const here = !awaitsMessages && this.attends.isShort ? pass.attendHere(layer, hidden) : null;
    const choice = here ?? (await pass.attend(layer, hidden));
    this.attends.took(this.nowMs() - begunMs);
    return choice;
  }

  async combine(
    pass: ShortPass,
    layer: number,
    outputs: Uint8Array,
    { rows, weights }: { rows: number; weights: Float32Array },
  ): Promise<void> {
    if (pass.combineHere === undefined || rows > SHORT_PASS_ROWS) return pass.combine(layer, outputs, weights);
    const times = layer + 1 < this.expertLayers ? this.combines : this.endings;
    const begunMs = this.nowMs();
    const isDone = times.isShort && pass.combineHere(layer, outputs, weights);
    if (!isDone) await pass.combine(layer, outputs, weights);
    times.took(this.nowMs() - begunMs);
  }
}
