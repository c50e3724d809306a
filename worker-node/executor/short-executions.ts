/** Rows of an execution that may run on the event loop's thread. */
export const SHORT_EXECUTION_ROWS = 4;

/** What the experts of one message may take there, in all, where loads come and go: so long a message about a load may have to wait. */
export const SHORT_EXECUTIONS_MS = 0.3;
/** Where everything has been there for QUIET_EXECUTIONS, and nothing waits behind them but the next layer. */
export const QUIET_EXECUTIONS_MS = 3;
export const QUIET_EXECUTIONS = 64;

/** Executions whose times count for the next ones. */
const EXECUTIONS_OF_MEAN = 16;
/** Of fewer nothing is foretold. */
const FEWEST_EXECUTIONS = 4;

/**
 * Foretells how long experts take on few rows, and says whether they are short enough to run on the thread of the event loop: a hand-off to
 * another thread and back costs two wake-ups, which is more than a short expert itself.
 */
export class ShortExecutions {
  private executions = 0;
  /** Of a row, or of a few: an expert's weights are read once for all of them. */
  private meanMs = 0;
  private quiet = 0;

  /** An expert has run; `loaded`: it had been loaded for that. */
  ran(rows: number, executeMs: number, loaded: boolean): void {
    this.quiet = loaded ? 0 : this.quiet + 1;
    if (rows > SHORT_EXECUTION_ROWS) return;
    this.executions += 1;
    this.meanMs += (executeMs - this.meanMs) / Math.min(this.executions, EXECUTIONS_OF_MEAN);
  }

  /** `experts`: of the message, that are there and not done. */
  isShort(rows: number, experts: number): boolean {
    if (rows > SHORT_EXECUTION_ROWS || this.executions < FEWEST_EXECUTIONS) return false;
    return experts * this.meanMs <= (this.quiet < QUIET_EXECUTIONS ? SHORT_EXECUTIONS_MS : QUIET_EXECUTIONS_MS);
  }
}
