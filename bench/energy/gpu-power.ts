/**
 * The power of NVIDIA GPUs, as NVML tells it to `nvidia-smi`. One child process prints it again and again until it is closed: NVML's own counter
 * of energy would need native code for the sake of benchmarks alone, and is missing before Volta.
 */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { PowerIntegral, type EnergyCounter } from './energy-counter.js';

const PROGRAM = 'nvidia-smi';
const QUERY = ['--query-gpu=index,power.draw', '--format=csv,noheader,nounits'] as const;
const EVERY_MS = 200;
/** The first call may wake up the driver. */
const FIRST_CALL_MS = 20_000;

export class GpuPower {
  readonly counters: readonly EnergyCounter[];
  readonly #watts: Map<number, number>;
  readonly #child: ChildProcess | null;

  private constructor(watts: Map<number, number>, program: string) {
    this.#watts = watts;
    this.#child = watts.size === 0 ? null : this.#follow(program);
    this.counters = [...watts.keys()].map((index) => new PowerIntegral(`gpu-${index}`, () => this.#wattsOf(index)));
  }

  /** Without counters where there is no `nvidia-smi`, or no GPU that tells its power; those within a Jetson do not. */
  static open(program = PROGRAM): GpuPower {
    const { status, stdout } = spawnSync(program, [...QUERY], { encoding: 'utf8', timeout: FIRST_CALL_MS });
    return new GpuPower(new Map(status === 0 ? stdout.split('\n').flatMap(powerIn) : []), program);
  }

  /** Ends the child process. Idempotent. */
  close(): void {
    this.#child?.kill();
  }

  #follow(program: string): ChildProcess {
    const child = spawn(program, [...QUERY, `--loop-ms=${EVERY_MS}`], { stdio: ['ignore', 'pipe', 'ignore'] });
    // A child that cannot start has no exit code; its last power is then too old as well.
    child.on('error', () => this.#watts.clear());
    child.on('exit', () => this.#watts.clear());
    createInterface({ input: child.stdout }).on('line', (line) => {
      for (const [index, watts] of powerIn(line)) this.#watts.set(index, watts);
    });
    child.unref();
    return child;
  }

  #wattsOf(index: number): number {
    const watts = this.#watts.get(index);
    if (watts === undefined) throw new Error(`${PROGRAM} has ended before the run`);
    return watts;
  }
}

/** The number of a GPU and its power in watts, from a line such as "0, 71.32". None: this GPU does not tell it ("[N/A]"). */
function powerIn(line: string): [number, number][] {
  const found = /^\s*(\d+),\s*(\d+(?:\.\d+)?)\s*$/.exec(line);
  return found === null ? [] : [[Number(found[1]), Number(found[2])]];
}
