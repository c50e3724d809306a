import { spawn, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import type { RoleSetting } from '../../../shared/settings/setting-choices.js';
import type { TestLog } from './test-log.js';

const START_LIMIT_MS = 60_000;
const EXIT_LIMIT_MS = 10_000;

/** All daemons that tests started and that have not ended. They are killed at the end of the test process. */
const running = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

export interface DaemonExit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

/** One daemon in a separate process (`odmoe main|shadow|worker`). */
export class TestDaemon {
  private constructor(
    readonly name: string,
    private readonly child: ChildProcess,
    readonly address: string,
    readonly exited: Promise<DaemonExit>,
  ) {}

  /** Resolves when the daemon has printed the address on which it listens. `root`: the directory of the odmoe that it is of. */
  static async start(
    role: RoleSetting,
    flags: readonly string[],
    name: string,
    log: TestLog,
    environment: Readonly<Record<string, string>> = {},
    root = packageRoot(),
  ): Promise<TestDaemon> {
    // A main with its own worker also needs the worker's code, and only `odmoe` has both. Other daemons start faster without `odmoe`.
    const entry = flags.includes('--experts')
      ? [join(root, 'bin', 'odmoe'), role]
      : [join(root, 'dist', `${role}-node`, 'main.js')];
    // Main serves no HTTP API here, because several tests run at the same time, and few of them need it.
    const quiet = role === 'main' ? ['--http', 'off'] : [];
    const child = spawn(process.execPath, [...entry, '--id', name, ...quiet, ...flags], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...environment },
    });
    running.add(child);
    const exited = new Promise<DaemonExit>((resolve) => {
      // Unlike 'exit', 'close' comes after the last output of the process was read.
      child.once('close', (code: number | null, signal: NodeJS.Signals | null) => {
        running.delete(child);
        log.add(name, `process ended: code ${code}, signal ${signal}`);
        resolve({ code, signal });
      });
    });
    const { stdout, stderr } = child;
    createInterface({ input: stderr }).on('line', (line) => {
      log.add(name, line);
    });
    const listening = new Promise<string>((resolve) => {
      createInterface({ input: stdout }).on('line', (line) => {
        const address = /listening on (\S+)$/.exec(line)?.[1];
        if (address !== undefined) resolve(address);
      });
    });
    const address = await Promise.race([listening, failure(exited, `${name} ended before it listened`), late(name)]);
    return new TestDaemon(name, child, address, exited);
  }

  get pid(): number {
    if (this.child.pid === undefined) throw new Error(`${this.name} has no process`);
    return this.child.pid;
  }

  signal(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }

  /** Sends the signal, and kills the process if it does not end in time. */
  async end(signal: NodeJS.Signals = 'SIGTERM'): Promise<DaemonExit> {
    this.child.kill(signal);
    // A stopped process handles no other signal before it continues.
    if (signal !== 'SIGKILL') this.child.kill('SIGCONT');
    const timer = setTimeout(() => this.child.kill('SIGKILL'), EXIT_LIMIT_MS);
    const exit = await this.exited;
    clearTimeout(timer);
    return exit;
  }
}

async function failure(exited: Promise<DaemonExit>, what: string): Promise<never> {
  const { code, signal } = await exited;
  throw new Error(`${what}: code ${code}, signal ${signal}`);
}

function late(name: string): Promise<never> {
  return new Promise((_, reject) => {
    setTimeout(() => {
      reject(new Error(`${name} did not listen within ${START_LIMIT_MS} ms`));
    }, START_LIMIT_MS).unref();
  });
}
