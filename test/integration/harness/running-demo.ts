import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../../shared/config/package-root.js';
import { waitUntil } from './wait-until.js';

const DEMO_TIME_LIMIT_MS = 60_000;

export interface DemoOutcome {
  status: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

/** `odmoe demo` as a process. */
export class RunningDemo {
  readonly child: ChildProcess;
  readonly outcome: Promise<DemoOutcome>;
  /** What it has written to stdout and stderr so far. */
  printed = '';
  said = '';

  constructor(flags: readonly string[], environment: NodeJS.ProcessEnv = {}) {
    const command = [join(packageRoot(), 'bin', 'odmoe'), 'demo', ...flags];
    this.child = spawn(process.execPath, command, { env: { ...process.env, ...environment }, stdio: 'pipe' });
    this.outcome = this.collect();
  }

  /** Daemons of this demo that run, by their command lines: they carry the demo's own cluster name. */
  daemons(): string[] {
    return this.daemonProcesses().map(({ words }) => words.join(' '));
  }

  /** Ends one of them, as a fault would. */
  killDaemon(id: string): void {
    const found = this.daemonProcesses().find(({ words }) => words.includes(id));
    assert.ok(found !== undefined, `there is no daemon ${id}`);
    process.kill(found.pid, 'SIGKILL');
  }

  private daemonProcesses(): { pid: number; words: string[] }[] {
    const marker = `demo-${this.child.pid ?? 0}`;
    return readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .map((pid) => ({ pid: Number(pid), words: commandLine(pid) }))
      .filter(({ words }) => words.includes(marker));
  }

  async assertNothingLeft(): Promise<void> {
    await waitUntil('no daemon of the demo is left', () => this.daemons().length === 0);
  }

  private async collect(): Promise<DemoOutcome> {
    const outcome = { stdout: '', stderr: '' };
    this.child.stdout?.on('data', (data: Buffer) => (outcome.stdout = this.printed += data.toString()));
    this.child.stderr?.on('data', (data: Buffer) => (outcome.stderr = this.said += data.toString()));
    const timer = setTimeout(() => this.child.kill('SIGKILL'), DEMO_TIME_LIMIT_MS);
    const [status, signal] = (await once(this.child, 'close')) as [number | null, NodeJS.Signals | null];
    clearTimeout(timer);
    return { status, signal, ...outcome };
  }
}

/** Words of a process's command line; none when it has ended. */
function commandLine(pid: string): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
  } catch {
    return [];
  }
}
