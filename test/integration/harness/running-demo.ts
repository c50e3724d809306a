import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import { waitUntil } from './wait-until.js';

const DEMO_TIME_LIMIT_MS = 100_000;

export interface DemoOutcome {
  status: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

/** The output of `odmoe demo --json`. */
export interface DemoJson {
  text: string;
  prompt_token_ids: number[];
  token_ids: number[];
  finish_reason: string;
  sep: { activated: number; correct_by_iteration: number[]; activated_by_iteration: number[] } | null;
  nodes: { id: string; role: string; slots: number; device_memory_high_water_bytes: number; pack_digest: string }[];
}

/** A reference answer that ships with the demo model. */
export interface DemoReference {
  prompt: string;
  prompt_token_ids: number[];
  token_ids: number[];
}

/** `odmoe demo` as a process. */
export class RunningDemo {
  readonly child: ChildProcess;
  readonly outcome: Promise<DemoOutcome>;
  /** The text on stdout (`printed`) and on stderr (`said`) so far. */
  printed = '';
  said = '';

  constructor(
    flags: readonly string[],
    environment: NodeJS.ProcessEnv = {},
    private readonly limitMs = DEMO_TIME_LIMIT_MS,
  ) {
    const command = [join(packageRoot(), 'bin', 'odmoe'), 'demo', ...flags];
    this.child = spawn(process.execPath, command, { env: { ...process.env, ...environment }, stdio: 'pipe' });
    this.outcome = this.collect();
  }

  /** Command lines of this demo's running daemons. They are found by the demo's own cluster name. */
  daemons(): string[] {
    return this.daemonProcesses().map(({ words }) => words.join(' '));
  }

  /** Kills a daemon, as a fault would. */
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
    const timer = setTimeout(() => this.child.kill('SIGKILL'), this.limitMs);
    const [status, signal] = (await once(this.child, 'close')) as [number | null, NodeJS.Signals | null];
    clearTimeout(timer);
    return { status, signal, ...outcome };
  }
}

export async function firstReference(): Promise<DemoReference> {
  const text = await readFile(join(packageRoot(), 'models', 'demo', 'reference.json'), 'utf8');
  const { references } = JSON.parse(text) as { references: DemoReference[] };
  assert.ok(references[0] !== undefined);
  return references[0];
}

/** Call this in a describe: it registers hooks. They end the demo of each test, and print its output if the test failed. */
export function runningDemos(): (flags: readonly string[], environment?: NodeJS.ProcessEnv) => RunningDemo {
  let demo: RunningDemo | null = null;

  before(function () {
    if (process.platform !== 'linux') this.skip();
  });

  afterEach(async function () {
    demo?.child.kill('SIGKILL');
    const outcome = await demo?.outcome;
    if (this.currentTest?.state === 'failed') process.stderr.write(`${outcome?.stdout}\n${outcome?.stderr}\n`);
    demo = null;
  });

  return (flags, environment) => (demo = new RunningDemo(flags, environment));
}

/** Words of a process's command line; none if the process has ended. */
function commandLine(pid: string): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
  } catch {
    return [];
  }
}
