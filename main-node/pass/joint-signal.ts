import { setMaxListeners } from 'node:events';
import { onAbort } from '../../shared/base/runtime/living.js';

/** A signal that is aborted once all of several are: nobody is left who waits. */
export class JointSignal {
  readonly signal: AbortSignal;
  private readonly controller = new AbortController();
  private readonly leave: readonly (() => void)[] = [];

  constructor(private readonly signals: readonly AbortSignal[]) {
    const [only] = signals;
    this.signal = signals.length === 1 && only !== undefined ? only : this.controller.signal;
    if (this.signal === only) return;
    // While no worker is left, every task of a pass waits on it.
    setMaxListeners(0, this.signal);
    this.leave = signals.map((signal) => onAbort(signal, this.heard));
    this.heard();
  }

  /** Listens no longer. */
  dispose(): void {
    for (const leave of this.leave) leave();
  }

  private readonly heard = (): void => {
    if (this.signals.every(({ aborted }) => aborted)) this.controller.abort();
  };
}
