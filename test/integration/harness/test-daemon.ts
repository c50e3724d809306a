import { spawn, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import type { RoleSetting } from '../../../shared/settings/node-settings.js';
import type { TestLog } from './test-log.js';

const START_LIMIT_MS = 20_000;
const EXIT_LIMIT_MS = 10_000;

/** Every daemon that a test has started and that has not ended: none outlives the test process. */
const running = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

export interface DaemonExit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

/** One daemon in a process of its own (`odmoe main|shadow|worker`). */
export class TestDaemon {
  private constructor(
    readonly name: string,
    private readonly child: ChildProcess,
    readonly address: string,
    readonly exited: Promise<DaemonExit>,
  ) {}

  /** Resolves when it says that it listens. */
  static async start(
    role: RoleSetting,
    flags: readonly string[],
    name: string,
    log: TestLog,
    environment: Readonly<Record<string, string>> = {},
  ): Promise<TestDaemon> {
    // A main with experts of its own needs a worker's code too, which only `odmoe` brings together. Alone a daemon starts sooner.
    const entry = flags.includes('--experts')
      ? [join(packageRoot(), 'bin', 'odmoe'), role]
      : [join(packageRoot(), 'dist', `${role}-node`, 'main.js')];
    // Several tests run at a time, and few of them are about HTTP.
    const quiet = role === 'main' ? ['--http', 'off'] : [];
    const child = spawn(process.execPath, [...entry, '--id', name, ...quiet, ...flags], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...environment },
    });
    running.add(child);
    const exited = new Promise<DaemonExit>((resolve) => {
      // Not 'exit': what it said last is read by then.
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

  /** Asks it to end and makes sure that it does. */
  async end(signal: NodeJS.Signals = 'SIGTERM'): Promise<DaemonExit> {
    this.child.kill(signal);
    // A stopped process takes no other signal before it goes on.
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
