import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import { onHost, type LanHost } from './emulated-lan.js';
import type { Server, Speeds, System } from './systems.js';

const READY_LIMIT_MS = 120_000;
const RUN_LIMIT_MS = 600_000;
const STOP_LIMIT_MS = 10_000;
const LOOK_AGAIN_MS = 100;
/** A worker counts once main has placed it, which follows its start. */
const SETTLE_MS = 3_000;
const SHOWN_CHARACTERS = 2_000;

/**
 * Starts the system's servers, lets it answer once to warm up and once to measure, and stops them.
 * @throws INTERNAL with what a process wrote
 */
export async function runSystem(system: System, signal: AbortSignal): Promise<Speeds> {
  const servers: RunningProcess[] = [];
  try {
    for (const server of system.servers) {
      const running = new RunningProcess(server.command, server.host, signal);
      servers.push(running);
      await running.untilReady(server);
    }
    await sleep(SETTLE_MS, undefined, { signal });
    await measureOnce(system, signal);
    return await measureOnce(system, signal);
  } finally {
    for (const server of servers.reverse()) await server.stop();
  }
}

async function measureOnce(system: System, signal: AbortSignal): Promise<Speeds> {
  const run = new RunningProcess(system.measure, system.measureHost, signal);
  try {
    const status = await run.untilEnd(RUN_LIMIT_MS);
    if (status !== 0) throw new OdmoeError('INTERNAL', `${system.name} ended with status ${status}: ${run.tail()}`);
    return system.parse(run.stdout);
  } finally {
    await run.stop();
  }
}

function listens({ host, port }: Server): boolean {
  const [file, ...rest] = onHost(host, ['ss', '-ltnH', `sport = :${port}`]);
  return spawnSync(file, rest, { encoding: 'utf8' }).stdout.includes(`:${port}`);
}

class RunningProcess {
  stdout = '';
  private stderr = '';
  private readonly child: ChildProcess;
  private readonly ended: Promise<number | null>;

  constructor(command: readonly string[], host: LanHost, signal: AbortSignal) {
    const [file, ...rest] = onHost(host, command);
    this.child = spawn(file, rest, { stdio: ['ignore', 'pipe', 'pipe'], signal, killSignal: 'SIGTERM' });
    this.child.stdout?.on('data', (data: Buffer) => (this.stdout += data.toString()));
    this.child.stderr?.on('data', (data: Buffer) => (this.stderr += data.toString()));
    this.child.on('error', (error) => (this.stderr += error.message));
    this.ended = new Promise((settle) => this.child.once('close', (status) => settle(status)));
  }

  tail(): string {
    return `${this.stdout}${this.stderr}`.slice(-SHOWN_CHARACTERS);
  }

  async untilReady(server: Server): Promise<void> {
    const { ready, command } = server;
    const name = command.slice(0, 2).join(' ');
    for (let waitedMs = 0; waitedMs < READY_LIMIT_MS; waitedMs += LOOK_AGAIN_MS) {
      if (this.child.exitCode !== null) throw new OdmoeError('INTERNAL', `${name} ended at once: ${this.tail()}`);
      if (ready === null ? listens(server) : ready.test(this.stdout)) return;
      await sleep(LOOK_AGAIN_MS);
    }
    throw new OdmoeError('INTERNAL', `${name} was not ready in time: ${this.tail()}`);
  }

  async untilEnd(limitMs: number): Promise<number | null> {
    const over = new AbortController();
    try {
      return await Promise.race([this.ended, sleep(limitMs, null, { signal: over.signal })]);
    } finally {
      over.abort();
    }
  }

  async stop(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    this.child.kill('SIGTERM');
    const killer = setTimeout(() => this.child.kill('SIGKILL'), STOP_LIMIT_MS);
    await this.ended;
    clearTimeout(killer);
  }
}
