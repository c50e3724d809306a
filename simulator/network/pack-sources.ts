import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';

/** Counts the pack sources that processes have open, and remembers when the last pack piece came. */
export class PackSources {
  private readonly open = new WeakMap<VirtualRuntime, number>();
  private readonly lastMs = new WeakMap<VirtualRuntime, number>();

  /** A process may ask a peer for pack pieces from now on, until it calls the returned function. */
  opened(runtime: VirtualRuntime): () => void {
    let isOpen = true;
    this.open.set(runtime, this.openOf(runtime) + 1);
    return () => {
      if (isOpen) this.open.set(runtime, this.openOf(runtime) - 1);
      isOpen = false;
    };
  }

  openOf(runtime: VirtualRuntime): number {
    return this.open.get(runtime) ?? 0;
  }

  /** Passes the pack pieces on and records the time when they end. */
  async *noted<Piece>(runtime: VirtualRuntime, pieces: AsyncIterable<Piece>): AsyncGenerator<Piece, void, undefined> {
    try {
      yield* pieces;
    } finally {
      this.lastMs.set(runtime, runtime.nowMs());
    }
  }

  /** Time by the process's clock; -Infinity: nothing came. */
  lastMsOf(runtime: VirtualRuntime): number {
    return this.lastMs.get(runtime) ?? -Infinity;
  }
}
