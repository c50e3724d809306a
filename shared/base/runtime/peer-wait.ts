import type { Runtime, Timer } from './runtime.js';
import { timerOrAbort } from './timer-or-abort.js';

/** A timer that is late by more than this shows that this process itself stood still: it was stopped, swapped out, or busy with one long turn. */
export const OWN_STANDSTILL_MS = 100;
/** If the wall clock ran ahead of a timer by more than this, the machine or its virtual machine slept. Timers do not count such time. */
export const OWN_SLEEP_MS = 1000;
/** Most times, within one wait, that a peer gets the full time again because this process stood still. */
export const FRESH_STARTS_LIMIT = 3;

/** A wait is cut into this many parts, so that a standstill within it is seen. */
const PARTS = 16;
const SHORTEST_PART_MS = 50;
/** Shorter than a timer can measure. */
const NOTHING_LEFT_MS = 0.5;

/** The functions of a runtime that a wait uses. */
export type WaitRuntime = Pick<Runtime, 'nowMs' | 'wallMs' | 'after' | 'nextTurn'>;

/**
 * The time that a peer has left for its answer. Only time in which this process ran counts. Messages that arrived during a standstill are still
 * to be read, and a peer may have to send lost packets again. So the peer gets the full time again, at most FRESH_STARTS_LIMIT times. Each part
 * counts with its planned length, so the wait ends however often this process stands still.
 */
export class PeerTime {
  private leftOfLimitMs: number;
  private freshStarts = 0;

  constructor(private readonly limitMs: number) {
    this.leftOfLimitMs = limitMs;
  }

  /** Time to wait before the next look at this value; 0: the peer has had its time. */
  get nextPartMs(): number {
    if (this.leftOfLimitMs < NOTHING_LEFT_MS) return 0;
    return Math.min(this.leftOfLimitMs, Math.max(SHORTEST_PART_MS, Math.ceil(this.limitMs / PARTS)));
  }

  /** Records that a part of `plannedMs` is over. `tookMs`, `wallTookMs`: its real length by the monotonic and by the wall clock. */
  passed(plannedMs: number, tookMs: number, wallTookMs: number): void {
    this.leftOfLimitMs -= plannedMs;
    if (!stoodStill(plannedMs, tookMs, wallTookMs) || this.freshStarts >= FRESH_STARTS_LIMIT) return;
    this.freshStarts += 1;
    this.leftOfLimitMs = this.limitMs;
  }
}

function stoodStill(plannedMs: number, tookMs: number, wallTookMs: number): boolean {
  return tookMs - plannedMs >= OWN_STANDSTILL_MS || wallTookMs - tookMs >= OWN_SLEEP_MS;
}

/**
 * Calls `onSilent` when a peer has had `limitMs` for its answer, as PeerTime counts it, and everything that arrived by then has been handled.
 * Code that judges another machine, process or thread by its silence must use this wait. `Runtime.after` is for the work of this process alone;
 * test/unit/peer-timers.test.ts lists its users and their purposes.
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
      // Timers run before arrived messages are handled. One turn of the event loop reads those, and the answer may be among them.
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

/** For work that polls: `hasPassed` returns true once the peers have had `limitMs`, as waitForPeer counts it. */
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

/** Resolves when all peers that were asked have had `limitMs` to answer, or at once when the signal aborts. */
export function timeForPeers(runtime: WaitRuntime, limitMs: number, signal?: AbortSignal): Promise<void> {
  return timerOrAbort((done) => waitForPeer(runtime, limitMs, done), signal);
}
