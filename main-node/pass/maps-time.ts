import { SHORT_PASS_ROWS } from './reusable-passes.js';

/** Most of the time of a hop, without the execution, that maps may take on the event loop's thread: main attends only behind them. */
const SHARE_OF_HOP = 0.25;
/** Runs of which the fastest one counts: the others may have waited for a processor. */
const LATEST_RUNS = 8;
/** Maps that were too slow run on that thread again at the latest after so many layers. */
const LAYERS_UNTIL_RETRY = 64;

/** The time that a hop leaves to maps on the event loop's thread; Infinity: no hop has been measured. Pure. */
export function timeInHop(hopMs: number): number {
  return hopMs === 0 ? Infinity : hopMs * SHARE_OF_HOP;
}

/** The runs for one number of rows. */
class MapsRuns {
  private readonly latestMs = new Float64Array(LATEST_RUNS).fill(Infinity);
  private runs = 0;
  /** Layers since the last run. */
  private passedBy = 0;

  took(ms: number): void {
    this.latestMs[this.runs++ % LATEST_RUNS] = ms;
    this.passedBy = 0;
  }

  /** Runs that are too slow come only as often as the time that other layers left to them allows. */
  mayRun(allowedMs: number): boolean {
    const fastestMs = Math.min(...this.latestMs);
    if (this.runs === 0 || fastestMs <= allowedMs) return true;
    this.passedBy += 1;
    return this.passedBy >= LAYERS_UNTIL_RETRY || this.passedBy * allowedMs >= fastestMs;
  }
}

/**
 * Decides by measured times whether trained maps run on the event loop's thread, which announces a little earlier, or on a thread beside main's attention.
 * A slow run, which had to wait for a processor, is followed by another one some layers later, and a single fast one then shows what maps can take.
 */
export class MapsTime {
  /** By number of rows. */
  private readonly runs = Array.from({ length: SHORT_PASS_ROWS + 1 }, () => new MapsRuns());

  /** `hopMs`: the present time of a hop without the execution; 0: none has been measured. */
  constructor(
    private readonly nowMs: () => number,
    private readonly hopMs: () => number,
  ) {}

  /** Is asked once in each layer. */
  mayRunHere(rows: number): boolean {
    return this.runs[rows]?.mayRun(timeInHop(this.hopMs())) === true;
  }

  /** Runs maps on the calling thread, for as many rows as mayRunHere has allowed. */
  runHere<Result>(rows: number, maps: () => Result): Result {
    const begunMs = this.nowMs();
    const result = maps();
    this.runs[rows]?.took(this.nowMs() - begunMs);
    return result;
  }
}
