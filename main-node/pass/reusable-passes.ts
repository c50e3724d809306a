import type { Model, Pass } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { onAbort } from '../../shared/base/runtime/living.js';

/** A native pass with the buffers that go in and out of it. */
export interface ReusablePass {
  readonly pass: Pass;
  /** rows x hiddenSize FP32: the input of the experts. */
  readonly hidden: Uint8Array;
  /** rows x k x hiddenSize FP32: the output of the experts, by rank. */
  readonly outputs: Uint8Array;
}

const FLOAT_BYTES = 4;

/** Passes of one size, created when first needed and used again. At most `count` are in use at a time; further callers wait in turn. */
export class ReusablePasses {
  private readonly idle: ReusablePass[] = [];
  private readonly waiting = new Set<() => void>();
  private taken = 0;
  private disposed = false;

  constructor(
    private readonly model: Pick<Model, 'createPass'>,
    private readonly shape: Pick<ModelShape, 'hiddenSize' | 'expertsPerToken'>,
    readonly rows: number,
    readonly count: number,
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
    const rowBytes = this.shape.hiddenSize * FLOAT_BYTES;
    return {
      pass: this.model.createPass(this.rows),
      hidden: new Uint8Array(this.rows * rowBytes),
      outputs: new Uint8Array(this.rows * this.shape.expertsPerToken * rowBytes),
    };
  }
}
