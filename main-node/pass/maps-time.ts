import { RecentMean } from './layer-waits.js';
import { SHORT_PASS_ROWS } from './reusable-passes.js';

/** Most of the time of a hop, without the execution, that maps may take on the event loop's thread: main attends only behind them. */
const SHARE_OF_HOP = 0.25;
/** Maps that were too slow there run there again once in so many times: what kept the processor may be over. */
const TIMES_UNTIL_RETRY = 64;

/** True if maps that take `takenMs` on the event loop's thread stay within the time that a hop leaves. 0: not measured. Pure. */
export function fitsIntoHop(takenMs: number, hopMs: number): boolean {
  return takenMs === 0 || hopMs === 0 || takenMs <= hopMs * SHARE_OF_HOP;
}

/** Decides by measured times whether trained maps run on the event loop's thread, which announces a little earlier, or on a thread beside main's attention. */
export class MapsTime {
  /** By number of rows. */
  private readonly taken = Array.from({ length: SHORT_PASS_ROWS + 1 }, () => new RecentMean());
  private timesAside = 0;

  /** `hopMs`: the present time of a hop without the execution; 0: none has been measured. */
  constructor(
    private readonly nowMs: () => number,
    private readonly hopMs: () => number,
  ) {}

  mayRunHere(rows: number): boolean {
    const taken = this.taken[rows];
    if (taken === undefined) return false;
    if (fitsIntoHop(taken.value, this.hopMs())) return true;
    this.timesAside += 1;
    return this.timesAside % TIMES_UNTIL_RETRY === 0;
  }

  /** Runs maps on the calling thread, for as many rows as mayRunHere has allowed. */
  runHere<Result>(rows: number, maps: () => Result): Result {
    const begunMs = this.nowMs();
    const result = maps();
    this.taken[rows]?.add(this.nowMs() - begunMs);
    return result;
  }
}
