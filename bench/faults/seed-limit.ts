/** How long a seed may take before it counts as hanging: in time of the processor, so that a busy machine makes no failures. */
import { readFileSync } from 'node:fs';

/** Of its process and all its threads. */
export const SEED_LIMIT_MS = 180_000;
/** A process that waits for something that never comes uses no processor: it hangs after so long on the clock on the wall. */
export const IDLE_LIMIT_MS = 180_000;
/** A process that has used less in that time does nothing, however busy the machine is. */
const IDLE_PROCESSOR_MS = 500;
/** Linux counts processor time in hundredths of a second, for programs on every machine. */
const TICK_MS = 10;

export interface SeedTimes {
  /** Of the processor, since the process began. */
  processorMs: number;
  wallMs: number;
}

/** Pure: whether a seed hangs, by what has been seen of its process. */
export class SeedWatch {
  private readonly begun: SeedTimes;
  /** When it last had done a noticeable piece of work. */
  private active: SeedTimes;

  constructor(begun: SeedTimes) {
    this.begun = begun;
    this.active = begun;
  }

  /** Why it hangs; null: it does not. */
  judge(now: SeedTimes): string | null {
    const usedMs = now.processorMs - this.begun.processorMs;
    if (usedMs > SEED_LIMIT_MS) return `the seed has used ${SEED_LIMIT_MS / 1000} s of the processor`;
    if (now.processorMs - this.active.processorMs >= IDLE_PROCESSOR_MS) this.active = now;
    if (now.wallMs - this.active.wallMs <= IDLE_LIMIT_MS) return null;
    return `the seed has done nothing for ${IDLE_LIMIT_MS / 1000} s`;
  }
}

/** Time of the processor that a process and its threads have used; where the system does not tell it (no Linux), that of the wall. */
export function processorMsOf(pid: number, wallMs: number): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // proc(5): the name in parentheses may hold anything; user and system time are the 12th and 13th fields behind it.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
  } catch {
    return wallMs;
  }
}
