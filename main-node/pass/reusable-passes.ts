import type { Pass, Model, RouterChoice } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { type ExpertRowShape, expertRowSize, type ModelShape } from '../../shared/model/model-shape.js';
import { onAbort } from '../../shared/base/runtime/living.js';

/** A native pass with the buffers that go in and out of it. */
export interface ReusablePass {
  readonly pass: Pass;
  /** rows x expertRowSize FP32: the input of the experts. */
  readonly hidden: Uint8Array;
  /** rows x k x expertRowSize FP32: the output of the experts, by rank. */
  readonly outputs: Uint8Array;
  /** The states that layers meet, for what reads them. */
  readonly states: ResidualStates;
}

const FLOAT_BYTES = 4;

/** Takes the residual stream of a pass into a buffer that is made when it is first needed, and used again. */
export class ResidualStates {
  private values = new Float32Array();

  constructor(private readonly hiddenSize: number) {}

  /** The states of all rows from which main is about to attend: rows x hiddenSize. They hold until the next call. */
  async take(pass: Pick<Pass, 'residual' | 'residualHere'>, rows: number): Promise<Float32Array> {
    const length = rows * this.hiddenSize;
    if (this.values.length < length) this.values = new Float32Array(length);
    const states = this.values.subarray(0, length);
    await copyResidual(pass, states, rows);
    return states;
  }
}

/** Passes of one size, created when first needed and used again. At most `count` are in use at a time; further callers wait in turn. */
export class ReusablePasses {
  private readonly idle: ReusablePass[] = [];
  private readonly waiting = new Set<() => void>();
  private taken = 0;
  private disposed = false;

  constructor(
    private readonly model: Pick<Model, 'createPass'>,
    private readonly shape: ExpertRowShape & Pick<ModelShape, 'expertsPerToken'>,
    readonly rows: number,
    readonly count: number,
    /** Routers answer all scores. */
    private readonly allScores = false,
  ) {}

  /** Number of passes in use and of callers that wait for one. */
  get openCount(): number {
    return this.taken + this.waiting.size;
  }

  /**
   * Runs `use` with a pass that nobody else uses meanwhile. A pass that saw an error is disposed. Rejects with CANCELLED if it is aborted while it
   * waits.
   */
  async use<T>(signal: AbortSignal, use: (slot: ReusablePass) => Promise<T>): Promise<T> {
    while (this.taken >= this.count) await this.turn(signal);
    this.taken += 1;
    try {
      const slot = this.idle.pop() ?? this.create();
      try {
        const result = await use(slot);
        if (this.disposed) slot.pass.dispose();
        else this.idle.push(slot);
        return result;
      } catch (thrown) {
        slot.pass.dispose();
        throw thrown;
      }
    } finally {
      this.taken -= 1;
      this.wakeNext();
    }
  }

  private wakeNext(): void {
    const next = this.waiting.values().next();
    if (next.done !== true) next.value();
  }

  private async turn(signal: AbortSignal): Promise<void> {
    await new Promise<void>((resolve) => {
      const wake = (): void => {
        this.waiting.delete(wake);
        leave();
        resolve();
      };
      this.waiting.add(wake);
      const leave = onAbort(signal, wake);
      if (signal.aborted) wake();
    });
    if (!signal.aborted) return;
    // This waiter may have been woken already, and gives its turn to the next one.
    this.wakeNext();
    throw new OdmoeError('CANCELLED', 'the request was cancelled while it waited for a pass');
  }

  dispose(): void {
    this.disposed = true;
    for (const slot of this.idle.splice(0)) slot.pass.dispose();
  }

  private create(): ReusablePass {
    const rowBytes = expertRowSize(this.shape) * FLOAT_BYTES;
    return {
      pass: this.model.createPass(this.rows, this.allScores),
      hidden: new Uint8Array(this.rows * rowBytes),
      outputs: new Uint8Array(this.rows * this.shape.expertsPerToken * rowBytes),
      states: new ResidualStates(this.shape.hiddenSize),
    };
  }
}

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

/** Copies the residual stream of all rows of a pass: rows x hiddenSize. A long prompt beside a short answer is not copied on the event loop. */
async function copyResidual(
  pass: Pick<Pass, 'residual' | 'residualHere'>,
  states: Float32Array,
  rows: number,
): Promise<void> {
  if (rows > SHORT_PASS_ROWS || pass.residualHere?.(states) !== true) await pass.residual(states);
}
