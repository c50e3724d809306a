import { execFile, execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { onAbort } from '../../shared/base/runtime/living.js';

const SUBNET = '10.213.78';
const START_LIMIT_MS = 10_000;
const STOP_GRACE_MS = 2_000;
const BITS_PER_MBIT = 1e6;

export interface LanOptions {
  hosts: number;
  rateMbitPerS: number;
  roundTripUs: number;
  /** The directory in which the switch's program is built. */
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
 * Hosts on this machine, each a network namespace, joined by a switch with a rate and a delay (delay-switch.cc). It needs Linux, root, the `ip`
 * command and a C++ compiler. Only one may exist on a machine at a time.
 */
export class EmulatedLan {
  private constructor(
    readonly hosts: readonly LanHost[],
    private readonly process: ChildProcess,
  ) {}

  /** @throws USAGE if this machine has no namespaces, no compiler or no TAP devices; AbortError */
  static async start(options: LanOptions, signal: AbortSignal): Promise<EmulatedLan> {
    const { rateMbitPerS, roundTripUs, directory } = options;
    const program = await buildSwitch(directory, signal);
    const hosts = Array.from({ length: options.hosts }, (_, index) => ({
      namespace: `odmoe-peers-${process.pid}-${index}`,
      address: `${SUBNET}.${index + 1}`,
    }));
    let child: ChildProcess | null = null;
    try {
      for (const { namespace } of hosts) ip('netns', 'add', namespace);
      const flags = [String(rateMbitPerS * BITS_PER_MBIT), String(roundTripUs / 2)];
      child = spawn(program, [...flags, ...hosts.map(({ namespace }) => namespace)], {
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      await untilUp(child, signal);
      for (const { namespace, address } of hosts) {
        ip('-n', namespace, 'address', 'add', `${address}/24`, 'dev', 'eth0');
        for (const device of ['lo', 'eth0']) ip('-n', namespace, 'link', 'set', device, 'up');
      }
      return new EmulatedLan(hosts, child);
    } catch (thrown) {
      if (child !== null) await endSwitch(child);
      removeNamespaces(hosts);
      throw thrown;
    }
  }

  /** Median round trip of a ping between the first two hosts, in microseconds; null if there is no `ping`. */
  pingUs(): number | null {
    const [from, to] = this.hosts;
    if (from === undefined || to === undefined) return null;
    const [file, ...rest] = onHost(from, ['ping', '-q', '-c', '20', '-i', '0.02', to.address]);
    const { stdout, status } = spawnSync(file, rest, { encoding: 'utf8' });
    const mean = /= [\d.]+\/([\d.]+)\//.exec(stdout)?.[1];
    return status !== 0 || mean === undefined ? null : Number(mean) * 1000;
  }

  /** Resolves when the switch has ended and the hosts are removed. */
  async stop(): Promise<void> {
    await endSwitch(this.process);
    removeNamespaces(this.hosts);
  }
}

async function buildSwitch(directory: string, signal: AbortSignal): Promise<string> {
  const program = join(directory, 'delay-switch');
  const source = join(packageRoot(), 'bench', 'peers', 'delay-switch.cc');
  const flags = ['-std=c++20', '-O2', '-Wall', '-Wextra', '-Werror', '-o', program, source];
  try {
    await promisify(execFile)('c++', flags, { signal });
    return program;
  } catch (thrown) {
    signal.throwIfAborted();
    const why = thrown instanceof Error ? thrown.message : String(thrown);
    throw new OdmoeError(
      'USAGE',
      `the switch of the emulated LAN cannot be built (${why}); install a C++ compiler that is called c++`,
      { cause: thrown },
    );
  }
}

async function untilUp(child: ChildProcess, signal: AbortSignal): Promise<void> {
  let stderr = '';
  child.stderr?.on('data', (data: Buffer) => (stderr += data.toString()));
  signal.throwIfAborted();
  const leaves: (() => void)[] = [];
  const why = await new Promise<string | null>((settle) => {
    child.once('error', (error) => settle(error.message));
    child.once('exit', (status) => settle(stderr.trim() || `status ${status ?? 'unknown'}`));
    child.stdout?.once('data', () => settle(null));
    leaves.push(onAbort(AbortSignal.timeout(START_LIMIT_MS), () => settle('it took too long')));
    leaves.push(onAbort(signal, () => settle('interrupted')));
  });
  for (const leave of leaves) leave();
  signal.throwIfAborted();
  if (why === null) return;
  throw new OdmoeError('USAGE', `the emulated LAN did not start (${why}); it needs root and /dev/net/tun`);
}

async function endSwitch(child: ChildProcess): Promise<void> {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  const killer = setTimeout(() => child.kill('SIGKILL'), STOP_GRACE_MS);
  await ended;
  clearTimeout(killer);
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
