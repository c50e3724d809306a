import { setMaxListeners } from 'node:events';

/** A signal that is aborted once all of several are: nobody is left who waits. */
export class JointSignal {
  readonly signal: AbortSignal;
  private readonly controller = new AbortController();

  constructor(private readonly signals: readonly AbortSignal[]) {
    const [only] = signals;
    this.signal = signals.length === 1 && only !== undefined ? only : this.controller.signal;
    if (this.signal === only) return;
    // While no worker is left, every task of a pass waits on it.
    setMaxListeners(0, this.signal);
    for (const signal of signals) signal.addEventListener('abort', this.heard);
    this.heard();
  }

  /** Listens no longer. */
  dispose(): void {
    for (const signal of this.signals) signal.removeEventListener('abort', this.heard);
  }

  private readonly heard = (): void => {
    if (this.signals.every(({ aborted }) => aborted)) this.controller.abort();
  };
}
