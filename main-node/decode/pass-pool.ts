import type { Model, Pass } from '../../native/index.js';
import type { ModelShape } from '../../shared/model/tensor-source.js';

/** A native pass with the buffers that go in and out of it. */
export interface PassSlot {
  readonly pass: Pass;
  /** rows x hiddenSize FP32: what the experts take. */
  readonly hidden: Uint8Array;
  /** rows x k x hiddenSize FP32: what they give, by rank. */
  readonly outputs: Uint8Array;
}

const FLOAT_BYTES = 4;

/** Passes of one size, made when first needed and used again; at most `count` at a time, further takers wait in turn. */
export class PassPool {
  private readonly idle: PassSlot[] = [];
  private readonly waiting: (() => void)[] = [];
  private taken = 0;
  private disposed = false;

  constructor(
    private readonly model: Pick<Model, 'createPass'>,
    private readonly shape: Pick<ModelShape, 'hiddenSize' | 'expertsPerToken'>,
    private readonly rows: number,
    private readonly count: number,
  ) {}

  /** Runs `use` with a pass of its own. A pass that saw an error is thrown away. */
  async use<T>(use: (slot: PassSlot) => Promise<T>): Promise<T> {
    while (this.taken >= this.count) await new Promise<void>((resolve) => this.waiting.push(resolve));
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
      this.waiting.shift()?.();
    }
  }

  dispose(): void {
    this.disposed = true;
    for (const slot of this.idle.splice(0)) slot.pass.dispose();
  }

  private create(): PassSlot {
    const rowBytes = this.shape.hiddenSize * FLOAT_BYTES;
    return {
      pass: this.model.createPass(this.rows),
      hidden: new Uint8Array(this.rows * rowBytes),
      outputs: new Uint8Array(this.rows * this.shape.expertsPerToken * rowBytes),
    };
  }
}
