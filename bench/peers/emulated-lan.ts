import { execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { packageRoot } from '../../shared/config/package-root.js';
import { OdmoeError } from '../../shared/errors/odmoe-error.js';

const SUBNET = '10.213.78';
const START_LIMIT_MS = 10_000;
const BITS_PER_MBIT = 1e6;

export interface LanOptions {
  hosts: number;
  rateMbitPerS: number;
  roundTripUs: number;
  /** Where the switch's program is built. */
  directory: string;
}

export interface LanHost {
  namespace: string;
  address: string;
}

/** The command line that runs `command` on a host of the LAN. */
export function onHost({ namespace }: LanHost, command: readonly string[]): [string, ...string[]] {
  return ['ip', 'netns', 'exec', namespace, ...command];
}

/**
 * Hosts on this machine, a network namespace each, joined by a switch of a rate and a delay (delay-switch.cc). Linux, root, the `ip`
 * command and a C++ compiler. One at a time on a machine.
 */
export class EmulatedLan {
  private constructor(
    readonly hosts: readonly LanHost[],
    private readonly process: ChildProcess,
  ) {}

  /** @throws USAGE where this machine has no namespaces, no compiler or no TAP devices */
  static async start({ hosts, rateMbitPerS, roundTripUs, directory }: LanOptions): Promise<EmulatedLan> {
    const program = buildSwitch(directory);
    const lan = Array.from({ length: hosts }, (_, index) => ({
      namespace: `odmoe-peers-${process.pid}-${index}`,
      address: `${SUBNET}.${index + 1}`,
    }));
    try {
      for (const { namespace } of lan) ip('netns', 'add', namespace);
      const flags = [String(rateMbitPerS * BITS_PER_MBIT), String(roundTripUs / 2)];
      const child = spawn(program, [...flags, ...lan.map(({ namespace }) => namespace)], {
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      await untilUp(child);
      for (const { namespace, address } of lan) {
        ip('-n', namespace, 'address', 'add', `${address}/24`, 'dev', 'eth0');
        for (const device of ['lo', 'eth0']) ip('-n', namespace, 'link', 'set', device, 'up');
      }
      return new EmulatedLan(lan, child);
    } catch (thrown) {
      removeNamespaces(lan);
      throw thrown;
    }
  }

  /** Median round trip of a ping between the first two hosts, in microseconds; null where there is no `ping`. */
  pingUs(): number | null {
    const [from, to] = this.hosts;
    if (from === undefined || to === undefined) return null;
    const [file, ...rest] = onHost(from, ['ping', '-q', '-c', '20', '-i', '0.02', to.address]);
    const { stdout, status } = spawnSync(file, rest, { encoding: 'utf8' });
    const mean = /= [\d.]+\/([\d.]+)\//.exec(stdout)?.[1];
    return status !== 0 || mean === undefined ? null : Number(mean) * 1000;
  }

  stop(): void {
    this.process.kill('SIGTERM');
    removeNamespaces(this.hosts);
  }
}

function buildSwitch(directory: string): string {
  const program = join(directory, 'delay-switch');
  const source = join(packageRoot(), 'bench', 'peers', 'delay-switch.cc');
  const built = spawnSync('c++', ['-std=c++20', '-O2', '-Wall', '-Wextra', '-Werror', '-o', program, source], {
    encoding: 'utf8',
  });
  if (built.status === 0) return program;
  const why = built.error?.message ?? built.stderr.trim();
  throw new OdmoeError('USAGE', `the switch of the emulated LAN cannot be built: ${why}`);
}

async function untilUp(child: ChildProcess): Promise<void> {
  let stderr = '';
  child.stderr?.on('data', (data: Buffer) => (stderr += data.toString()));
  await new Promise<void>((settle, fail) => {
    const failed = (why: string): void =>
      fail(new OdmoeError('USAGE', `the emulated LAN did not start (${why}); it needs root and /dev/net/tun`));
    const timer = setTimeout(() => failed('it took too long'), START_LIMIT_MS);
    child.once('exit', (status) => {
      clearTimeout(timer);
      failed(stderr.trim() || `status ${status}`);
    });
    child.stdout?.once('data', () => {
      clearTimeout(timer);
      settle();
    });
  });
}

function ip(...flags: string[]): void {
  try {
    execFileSync('ip', flags, { stdio: ['ignore', 'ignore', 'pipe'] });
  } catch (thrown) {
    const why = thrown instanceof Error ? thrown.message : String(thrown);
    throw new OdmoeError('USAGE', `network namespaces cannot be made here (Linux, root and the ip command): ${why}`, {
      cause: thrown,
    });
  }
}

function removeNamespaces(hosts: readonly LanHost[]): void {
  for (const { namespace } of hosts) spawnSync('ip', ['netns', 'delete', namespace], { stdio: 'ignore' });
}
