import { randomInt, randomUUID } from 'node:crypto';
import { bootId } from './boot-id.js';
import { uptime } from 'node:os';
import { availableMemoryBytes } from './available-memory.js';
import type { Runtime, Timer } from './runtime.js';
import { living } from './living.js';
import { timerOrAbort } from './timer-or-abort.js';

/** Resolves at a time of CLOCK_MONOTONIC in ms, as precisely as possible. */
export type WaitUntil = (dueMs: number) => Promise<void>;

/** The runtime of a real process: its clocks, its event loop, the system's random numbers. The only code that touches them. */
export class WallRuntime implements Runtime {
  private eventAtMs: number | null = null;
  private residentBytes = 0;

  /** `waitUntil`: used for work that must end at an exact time (emulated hardware). */
  constructor(private readonly waitUntil: WaitUntil = coarseWait) {}

  nowMs(): number {
    return monotonicMs();
  }

  eventMs(): number {
    return this.eventAtMs ?? monotonicMs();
  }

  wallMs(): number {
    return Date.now();
  }

  after(delayMs: number, run: () => void): Timer {
    const end = living().begin('timer', run);
    const handle = setTimeout(() => {
      end();
      run();
    }, delayMs);
    return timerOf(handle, clearTimeout, end);
  }

  every(intervalMs: number, run: () => void): Timer {
    return timerOf(setInterval(run, intervalMs), clearInterval, living().begin('timer', run));
  }

  nextTurn(run: () => void): Timer {
    const end = living().begin('turn', run);
    const handle = setImmediate(() => {
      end();
      run();
    });
    return timerOf(handle, clearImmediate, end);
  }

  sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    return timerOrAbort((done) => this.after(delayMs, done), signal);
  }

  randomInt(limit: number): number {
    return limit <= 1 ? 0 : randomInt(Math.min(limit, RANDOM_LIMIT));
  }

  memoryBytes(): number {
    try {
      this.residentBytes = process.memoryUsage.rss();
    } catch {
      // The system reports the memory by a file, and the process may open no more files: the last value stays.
    }
    return this.residentBytes;
  }

  freeHostMemoryBytes(): number {
    return availableMemoryBytes();
  }

  hostUptimeMs(): number {
    return uptime() * 1000;
  }

  hostBootId(): string {
    return bootId();
  }

  randomId(): string {
    return randomUUID();
  }

  async outside<Result>(work: () => Promise<Result>, dueMs?: number): Promise<Result> {
    const result = await work();
    if (dueMs === undefined) return result;
    await this.waitUntil(dueMs);
    this.handleEventOf(dueMs);
    return result;
  }

  /** Until this turn ends, eventMs() is `eventAtMs`. */
  private handleEventOf(eventAtMs: number): void {
    this.eventAtMs = Math.min(eventAtMs, monotonicMs());
    const mine = this.eventAtMs;
    setImmediate(() => {
      if (this.eventAtMs === mine) this.eventAtMs = null;
    });
  }
}

/** CLOCK_MONOTONIC, which all processes of a machine share. */
function monotonicMs(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1e3 + nanoseconds / 1e6;
}

/** Largest range that crypto.randomInt accepts. */
const RANDOM_LIMIT = 2 ** 48 - 1;

interface NodeTimer {
  unref(): unknown;
}

function timerOf<Handle extends NodeTimer>(handle: Handle, clear: (handle: Handle) => void, end: () => void): Timer {
  return {
    cancel: () => {
      end();
      clear(handle);
    },
    unref: () => {
      handle.unref();
    },
  };
}

function coarseWait(dueMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.max(0, dueMs - monotonicMs())));
}
