import { spawnSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { onHost } from './emulated-lan.js';
import { RunningProcess } from './running-process.js';
import type { Server, Speeds, System } from './systems.js';

/** A worker counts once main has placed it, which follows its start. */
const SETTLE_MS = 3_000;

/**
 * Starts the system's servers, lets it answer once to warm up and once to measure, and stops them: none is left, however it ends.
 * @throws what the processes throw (running-process.ts), and USAGE or INTERNAL where there are no figures; AbortError
 */
export async function runSystem(system: System, signal: AbortSignal): Promise<Speeds> {
  const servers: RunningProcess[] = [];
  try {
    for (const server of system.servers) {
      const name = `${system.name}: ${server.program} at ${server.host.address}`;
      const running = new RunningProcess(name, onHost(server.host, server.command), signal);
      servers.push(running);
      await running.untilReady((printed) => server.ready?.test(printed) ?? listens(server));
    }
    await sleep(SETTLE_MS, undefined, { signal });
    await measureOnce(system, signal);
    return await measureOnce(system, signal);
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}

async function measureOnce(system: System, signal: AbortSignal): Promise<Speeds> {
  const run = new RunningProcess(`${system.name}: the measurement`, onHost(system.measureHost, system.measure), signal);
  try {
    return system.parse(await run.untilDone());
  } finally {
    await run.stop();
  }
}

function listens({ host, port }: Server): boolean {
  const [file, ...rest] = onHost(host, ['ss', '-ltnH', `sport = :${port}`]);
  return spawnSync(file, rest, { encoding: 'utf8' }).stdout.includes(`:${port}`);
}
