import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';

/** How long members of the last pass are waited for: a part of what the pass took, within these bounds. */
const RETURN_SHARE = 0.1;
export const RETURN_LEAST_MS = 5;
export const RETURN_LIMIT_MS = 50;

/**
 * What a pass that could begin waits for. 'return': members of the last pass. 'turn': a turn of the event loop and no more, in which others
 * that ask at the same time come, or those members that were late before.
 */
export type WaitFor = 'return' | 'turn';

/** The wait of a loop whose next pass could begin. */
export class PassWait {
  /** It has been long enough. */
  isOver = false;
  private what: WaitFor | null = null;
  private timer: Timer | null = null;

  constructor(
    private readonly runtime: Pick<Runtime, 'after' | 'nextTurn'>,
    private readonly onOver: () => void,
  ) {}

  /** Waits for this from now on; a wait for the same goes on. */
  begin(what: WaitFor, lastPassMs: number): void {
    if (what === this.what) return;
    this.timer?.cancel();
    this.what = what;
    const over = (): void => {
      this.isOver = true;
      this.timer = null;
      this.onOver();
    };
    this.timer = what === 'turn' ? this.runtime.nextTurn(over) : this.runtime.after(returnLimitMs(lastPassMs), over);
  }

  /** A pass begins, or nobody is left who could. */
  end(): void {
    this.timer?.cancel();
    this.timer = null;
    this.what = null;
    this.isOver = false;
  }
}

function returnLimitMs(lastPassMs: number): number {
  return Math.min(RETURN_LIMIT_MS, Math.max(RETURN_LEAST_MS, RETURN_SHARE * lastPassMs));
}
