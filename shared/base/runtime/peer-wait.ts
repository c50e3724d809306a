import type { Runtime, Timer } from './runtime.js';
import { timerOrAbort } from './timer-or-abort.js';

/** A timer that comes so much too late tells that this process itself stood still: stopped, swapped out, or busy with one long turn. */
export const OWN_STALL_MS = 100;
/** A wall clock that is so far ahead of what a timer took tells that the machine slept, or its virtual machine: timers do not see that. */
export const OWN_SLEEP_MS = 1000;
/** How often, within one wait, a peer gets the whole time once more because this process stood still. */
export const FRESH_STARTS_LIMIT = 3;

/** A wait is cut into so many parts, so that a standstill in the middle of it shows, too. */
const PARTS = 16;
const SHORTEST_PART_MS = 50;
/** Less than a timer can tell. */
const NOTHING_LEFT_MS = 0.5;

/** What a wait needs of a runtime. */
export type WaitRuntime = Pick<Runtime, 'nowMs' | 'wallMs' | 'after' | 'nextTurn'>;

/**
 * How much time a peer has left for its answer. Only time in which this process ran counts. What came while it stood still is still to be
 * read, and may have to be sent again by a peer whose packets nobody took: so the peer gets the whole time once more, FRESH_STARTS_LIMIT
 * times at most. Each part counts with what it was to last, so that the wait ends however often this process stands still.
 */
export class PeerTime {
  private leftOfLimitMs: number;
  private freshStarts = 0;

  constructor(private readonly limitMs: number) {
    this.leftOfLimitMs = limitMs;
  }

  /** How long to wait before this is asked again; 0: the peer has had its time. */
  get nextPartMs(): number {
    if (this.leftOfLimitMs < NOTHING_LEFT_MS) return 0;
    return Math.min(this.leftOfLimitMs, Math.max(SHORTEST_PART_MS, Math.ceil(this.limitMs / PARTS)));
  }

  /** A part that was to last `plannedMs` is over. `tookMs`, `wallTookMs`: how long it was by the monotonic and by the wall clock. */
  passed(plannedMs: number, tookMs: number, wallTookMs: number): void {
    this.leftOfLimitMs -= plannedMs;
    if (!stoodStill(plannedMs, tookMs, wallTookMs) || this.freshStarts >= FRESH_STARTS_LIMIT) return;
    this.freshStarts += 1;
    this.leftOfLimitMs = this.limitMs;
  }
}

function stoodStill(plannedMs: number, tookMs: number, wallTookMs: number): boolean {
  return tookMs - plannedMs >= OWN_STALL_MS || wallTookMs - tookMs >= OWN_SLEEP_MS;
}

/**
 * Calls `onSilent` when a peer has had `limitMs` for what it owes, as PeerTime counts it, and what has arrived by then has been handled.
 * Whoever judges somebody else by silence (another machine, process or thread) waits by this; `Runtime.after` is for the own work of a
 * process, and test/unit/peer-timers.test.ts names who uses it for what.
 */
export function waitForPeer(runtime: WaitRuntime, limitMs: number, onSilent: (waitedMs: number) => void): Timer {
  const time = new PeerTime(limitMs);
  const begunMs = runtime.nowMs();
  let isUnreferenced = false;
  let timer: Timer;
  const set = (next: Timer): void => {
    timer = next;
    if (isUnreferenced) timer.unref();
  };
  const waitOn = (): void => {
    const partMs = time.nextPartMs;
    const [fromMs, fromWallMs] = [runtime.nowMs(), runtime.wallMs()];
    if (partMs === 0) {
      // Timers come before what has arrived: one turn of the event loop reads that, and it may be the answer.
      set(runtime.nextTurn(() => onSilent(runtime.nowMs() - begunMs)));
      return;
    }
    set(
      runtime.after(partMs, () => {
        time.passed(partMs, runtime.nowMs() - fromMs, runtime.wallMs() - fromWallMs);
        waitOn();
      }),
    );
  };
  waitOn();
  return {
    cancel: () => timer.cancel(),
    unref: () => {
      isUnreferenced = true;
      timer.unref();
    },
  };
}

/** For work that looks again and again: `hasPassed` says whether the others have had `limitMs`, as waitForPeer counts it. */
export async function withPeerDeadline<Result>(
  runtime: WaitRuntime,
  limitMs: number,
  work: (hasPassed: () => boolean) => Promise<Result>,
): Promise<Result> {
  let isOver = false;
  const timer = waitForPeer(runtime, limitMs, () => {
    isOver = true;
  });
  try {
    return await work(() => isOver);
  } finally {
    timer.cancel();
  }
}

/** Resolves when all who were asked have had `limitMs` to answer, or at once when the signal aborts. */
export function timeForPeers(runtime: WaitRuntime, limitMs: number, signal?: AbortSignal): Promise<void> {
  return timerOrAbort((done) => waitForPeer(runtime, limitMs, done), signal);
}
