import { fork, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { onAbort } from '../../shared/base/runtime/living.js';
import { addHappened, NOTHING_HAPPENED, type Happened } from '../../simulator/faults/happened.js';
import type { SeedOutcome, SeedReport } from './seed-messages.js';
import { readFileSync } from 'node:fs';

/** Seeds that a process gets at a time: a small number, so that all processes end at about the same time. */
const BLOCK_SEEDS = 8;
/** Most objects of a simulated cluster are soon garbage. With a larger young generation, fewer of them are moved. */
const YOUNG_OBJECTS = '--max-semi-space-size=64';
/** Interval of the check whether a seed hangs. */
const WATCH_INTERVAL_MS = 2_000;

export interface SeedRange {
  from: number;
  count: number;
  /** Number of processes that share the seeds. */
  processes: number;
  onOutcome?: (outcome: SeedOutcome) => void;
  signal?: AbortSignal;
  /** Environment variables of the processes, in addition to those of this process. */
  environment?: Record<string, string>;
}

/** Runs the seeds in several processes. The result, in order of seeds, does not depend on how they are divided. */
export async function runSeeds(range: SeedRange): Promise<SeedOutcome[]> {
  const { from, count, processes } = range;
  const outcomes = new Map<number, SeedOutcome>();
  let next = from;
  const takeBlock = (): number[] => {
    const first = next;
    next = Math.min(from + count, first + BLOCK_SEEDS);
    return Array.from({ length: next - first }, (_, index) => first + index);
  };
  const onOutcome = (outcome: SeedOutcome): void => {
    outcomes.set(outcome.seed, outcome);
    range.onOutcome?.(outcome);
  };
  const runners = Math.min(processes, Math.ceil(count / BLOCK_SEEDS));
  await Promise.all(Array.from({ length: runners }, () => runBlocks(takeBlock, onOutcome, range)));
  return [...outcomes.values()].sort((left, right) => left.seed - right.seed);
}

/** One hash of the histories of all seeds, in order of seeds. */
export function historyOf(outcomes: readonly SeedOutcome[]): string {
  const hash = createHash('sha256');
  for (const { seed, history } of outcomes) hash.update(`${seed} ${history}\n`);
  return hash.digest('hex');
}

/** Counts of events in the mains of all seeds. */
export function happenedIn(outcomes: readonly SeedOutcome[]): Happened {
  const sum = { ...NOTHING_HAPPENED };
  for (const { happened } of outcomes) addHappened(sum, happened);
  return sum;
}

/** Runs blocks until there are no more. If a process dies or hangs, another one replaces it, and its present seed counts as failed. */
async function runBlocks(
  takeBlock: () => number[],
  onOutcome: (outcome: SeedOutcome) => void,
  { signal, environment = {} }: SeedRange,
): Promise<void> {
  const isWanted = (): boolean => signal?.aborted !== true;
  let block = takeBlock();
  while (block.length > 0 && isWanted()) {
    const runner = new SeedProcess(onOutcome, environment);
    const leave = onAbort(signal, () => runner.stop());
    let failed: SeedOutcome | null = null;
    while (failed === null && block.length > 0) {
      failed = await runner.run(block);
      if (failed === null) block = takeBlock();
    }
    leave();
    runner.stop();
    if (failed === null || !isWanted()) return;
    const { seed } = failed;
    onOutcome(failed);
    block = block.filter((later) => later > seed);
    if (block.length === 0) block = takeBlock();
  }
}

/** A child process that runs blocks of seeds. */
class SeedProcess {
  private readonly child: ChildProcess;

  constructor(
    private readonly onOutcome: (outcome: SeedOutcome) => void,
    environment: Record<string, string>,
  ) {
    this.child = fork(fileURLToPath(new URL('./seed-process.js', import.meta.url)), {
      execArgv: [YOUNG_OBJECTS],
      env: { ...process.env, ...environment },
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
  }

  stop(): void {
    this.child.kill('SIGKILL');
  }

  private times(): SeedTimes {
    const wallMs = performance.now();
    return { processorMs: processorMsOf(this.child.pid ?? 0, wallMs), wallMs };
  }

  /** Resolves with null when all seeds of the block have run, else with the failure of the seed during which the process died or hung. */
  run(block: readonly number[]): Promise<SeedOutcome | null> {
    const [from = 0] = block;
    return new Promise((resolve) => {
      let current = from;
      const over = (failed: SeedOutcome | null): void => {
        clearInterval(timer);
        this.child.removeAllListeners();
        resolve(failed);
      };
      const failed = (detail: string): void =>
        over({
          seed: current,
          history: '',
          happened: NOTHING_HAPPENED,
          violations: [{ invariant: 'the process survives', detail }],
        });
      let watch = new SeedWatch(this.times());
      const timer = setInterval(() => {
        const hangs = watch.judge(this.times());
        if (hangs !== null) failed(hangs);
      }, WATCH_INTERVAL_MS);
      this.child.on('exit', (status, ended) => failed(`it ended with ${ended ?? `status ${status}`}`));
      this.child.on('error', (error) => failed(error.message));
      this.child.on('message', (report: SeedReport) => {
        watch = new SeedWatch(this.times());
        if (report.kind === 'begun') {
          current = report.seed;
          return;
        }
        this.onOutcome(report.outcome);
        if (report.outcome.seed === block.at(-1)) over(null);
      });
      this.child.send({ from, count: block.length }, (error) => {
        if (error !== null) failed(error.message);
      });
    });
  }
}

/** Limits after which a seed counts as hanging. Processor time is used, so that a busy machine causes no failures. */

/** Processor time of its process with all threads. */
export const SEED_LIMIT_MS = 180_000;
/** Wall time after which a process without work counts as hanging: it waits for something that never comes, and uses no processor. */
export const IDLE_LIMIT_MS = 180_000;
/** A process that uses less processor time within that limit does no work, even on a busy machine. */
const IDLE_PROCESSOR_MS = 500;
/** Linux counts processor time in hundredths of a second, on every machine. */
const TICK_MS = 10;

interface SeedTimes {
  /** Processor time since the process began. */
  processorMs: number;
  wallMs: number;
}

/** Decides from a process's times whether its seed hangs. Pure. */
export class SeedWatch {
  private readonly begun: SeedTimes;
  /** The times at its last noticeable piece of work. */
  private active: SeedTimes;

  constructor(begun: SeedTimes) {
    this.begun = begun;
    this.active = begun;
  }

  /** The reason why it hangs; null: it does not. */
  judge(now: SeedTimes): string | null {
    const usedMs = now.processorMs - this.begun.processorMs;
    if (usedMs > SEED_LIMIT_MS) return `the seed has used ${SEED_LIMIT_MS / 1000} s of the processor`;
    if (now.processorMs - this.active.processorMs >= IDLE_PROCESSOR_MS) this.active = now;
    if (now.wallMs - this.active.wallMs <= IDLE_LIMIT_MS) return null;
    return `the seed has done nothing for ${IDLE_LIMIT_MS / 1000} s`;
  }
}

/** Processor time of a process with its threads. If the system does not report it (no Linux), the wall time. */
export function processorMsOf(pid: number, wallMs: number): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // proc(5): the name in parentheses may hold anything; user and system time are the 12th and 13th fields after it.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
  } catch {
    return wallMs;
  }
}
