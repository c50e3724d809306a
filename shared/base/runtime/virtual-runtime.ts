import type { Runtime, Timer } from './runtime.js';
import { SeededRandom } from './seeded-random.js';
import type { ScheduledEvent, VirtualClock } from './virtual-clock.js';
import { liveIn, Living } from './living.js';
import { timerOrAbort } from './timer-or-abort.js';

/** Free memory of every simulated host: more than the models of tests take. */
const VIRTUAL_HOST_MEMORY_BYTES = 16 * 1024 ** 3;

/** Counts of the things that a runtime has open. All are 0 after a daemon has stopped in order. */
export interface OpenCounts {
  timers: number;
  turns: number;
  works: number;
}

/** The state of the simulated process: it runs, it has been stopped by a signal (SIGSTOP), or it has been killed. */
type ProcessState = 'running' | 'paused' | 'dead';

/**
 * The runtime of one simulated process on a virtual clock that all of them share. In a killed process nothing happens any more. In a paused
 * process events wait, and happen when it resumes: timers first, then arrivals, as in Node's event loop.
 */
export class VirtualRuntime implements Runtime {
  private readonly random: SeededRandom;
  /** The registry of things that the process has begun and not ended. */
  readonly living = new Living();
  private state: ProcessState = 'running';
  private late: { kind: 'timer' | 'arrival'; run: () => void }[] = [];
  /** Files that work outside the event loop has opened. */
  private readonly files = new Set<OpenFile>();
  private ids = 0;

  /** `wallOffsetMs`: the machine's wall time at the clock's zero; it may be changed. */
  constructor(
    private readonly clock: VirtualClock,
    seed: number,
    public wallOffsetMs = WALL_ZERO_MS,
  ) {
    this.random = new SeededRandom(seed);
  }

  get openCounts(): Readonly<OpenCounts> {
    const { timer, turn, work } = this.living.counts();
    return { timers: timer, turns: turn, works: work };
  }

  /** Number of files that the process has opened and not closed. */
  get openFiles(): number {
    return [...this.files].filter(({ fd }) => fd !== CLOSED).length;
  }

  get isRunning(): boolean {
    return this.state === 'running';
  }

  get isDead(): boolean {
    return this.state === 'dead';
  }

  nowMs(): number {
    return this.clock.nowMs;
  }

  eventMs(): number {
    return this.clock.nowMs;
  }

  wallMs(): number {
    return this.wallOffsetMs + this.clock.nowMs;
  }

  after(delayMs: number, run: () => void): Timer {
    return this.once('timer', Math.max(delayMs, SHORTEST_TIMER_MS), run);
  }

  every(intervalMs: number, run: () => void): Timer {
    let current: Timer;
    const next = (): void => {
      current = this.after(intervalMs, () => {
        next();
        run();
      });
    };
    next();
    return { cancel: () => current.cancel(), unref: () => undefined };
  }

  nextTurn(run: () => void): Timer {
    return this.once('turn', 0, run);
  }

  sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    return timerOrAbort((done) => this.after(delayMs, done), signal);
  }

  randomInt(limit: number): number {
    return this.random.int(limit);
  }

  /** All simulated processes share a real one, so the memory of that one says nothing about them. */
  memoryBytes(): number {
    return 0;
  }

  freeHostMemoryBytes(): number {
    return VIRTUAL_HOST_MEMORY_BYTES;
  }

  /** A virtual host starts at the zero of its clock. */
  hostUptimeMs(): number {
    return this.nowMs();
  }

  /** A virtual host is never started again. */
  hostBootId(): string {
    return 'virtual';
  }

  randomId(): string {
    this.ids += 1;
    return `${this.random
      .int(2 ** 48)
      .toString(16)
      .padStart(12, '0')}-${this.ids}`;
  }

  outside<Result>(work: () => Promise<Result>, dueMs = 0): Promise<Result> {
    const real = startWork(work);
    // The failure is reported when the event of this work comes.
    real.catch(() => undefined);
    const end = this.living.begin('work', work);
    return new Promise<Result>((resolve, reject) => {
      const settle = (): void => {
        end();
        real.then(resolve, reject);
      };
      void real.then(
        (result) => this.noteFile(result),
        () => undefined,
      );
      this.clock.schedule(dueMs, () => this.happen(settle), real);
    });
  }

  /** Real work that the process does not see: it goes on when the process is killed. */
  watch(work: Promise<unknown>): void {
    this.clock.watch(work);
  }

  /** A timer of the world around the process. It does not count as open in the process. */
  background(delayMs: number, run: () => void): ScheduledEvent {
    return this.clock.schedule(this.clock.nowMs + delayMs, () => this.handle('timer', run));
  }

  /** Handles an arrival from another process in the same way as one from this process. A killed process drops it. */
  happen(run: () => void): void {
    this.handle('arrival', run);
  }

  private handle(kind: 'timer' | 'arrival', run: () => void): void {
    if (this.state === 'running') this.within(run);
    else if (this.state === 'paused') this.late.push({ kind, run });
  }

  /** Runs code of the process now. Things that this code begins, also in promises that this turn settles, belong to the process. */
  within<Result>(run: () => Result): Result {
    liveIn(this.living);
    return run();
  }

  /** As SIGSTOP. */
  pause(): void {
    if (this.state === 'running') this.state = 'paused';
  }

  /**
   * As SIGCONT: overdue timers fire first, each in a separate turn, before anything that arrived meanwhile is read. This exposes code that
   * judges a peer by a timer alone.
   */
  resume(): void {
    if (this.state !== 'paused') return;
    this.state = 'running';
    const late = this.late.splice(0);
    for (const first of ['timer', 'arrival'] as const) {
      for (const { kind, run } of late) {
        if (kind === first) this.clock.schedule(this.clock.nowMs, () => this.handle(kind, run));
      }
    }
  }

  /** As SIGKILL: the system closes the process's files. */
  kill(): void {
    this.state = 'dead';
    this.late = [];
    for (const file of this.files) this.closeFile(file);
    this.files.clear();
  }

  private noteFile(result: unknown): void {
    if (!isFile(result)) return;
    for (const file of this.files) if (file.fd === CLOSED) this.files.delete(file);
    if (this.state === 'dead') this.closeFile(result);
    else this.files.add(result);
  }

  private closeFile(file: OpenFile): void {
    if (file.fd !== CLOSED) this.clock.watch(file.close().catch(() => undefined));
  }

  private once(kind: 'timer' | 'turn', delayMs: number, run: () => void): Timer {
    let pending = true;
    const forget = this.living.begin(kind, run);
    const end = (): boolean => {
      if (!pending) return false;
      pending = false;
      forget();
      return true;
    };
    const event = this.clock.schedule(this.clock.nowMs + delayMs, () => {
      this.handle(kind === 'timer' ? 'timer' : 'arrival', () => {
        if (end()) run();
      });
    });
    return {
      cancel: () => {
        if (end()) event.cancel();
      },
      unref: () => undefined,
    };
  }
}

/** 1 January 2026. */
export const WALL_ZERO_MS = 1_767_225_600_000;
/** As in Node: a timer with a shorter delay fires after a millisecond. */
const SHORTEST_TIMER_MS = 1;

/** A FileHandle of node:fs. */
interface OpenFile {
  readonly fd: number;
  close(): Promise<void>;
}

const CLOSED = -1;

function isFile(result: unknown): result is OpenFile {
  return typeof result === 'object' && result !== null && 'fd' in result && 'close' in result;
}

/** Turns an error that is thrown before the promise exists into a rejection. */
async function startWork<Result>(work: () => Promise<Result>): Promise<Result> {
  return work();
}
