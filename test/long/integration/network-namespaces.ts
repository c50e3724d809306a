import { execFileSync, spawnSync } from 'node:child_process';

const SUBNET = '10.213.77';
const PREFIX_BITS = 24;

/** Why network namespaces cannot be made here; null when they can. */
export function namespacesUnavailable(): string | null {
  if (process.platform !== 'linux') return 'network namespaces exist on Linux only';
  if (process.getuid?.() !== 0) return 'network namespaces need root';
  const probe = `odmoe-probe-${process.pid}`;
  const made = spawnSync('ip', ['netns', 'add', probe], { encoding: 'utf8' });
  if (made.error) return `the ip command cannot be run: ${made.error.message}`;
  if (made.status !== 0) return `network namespaces are not allowed here: ${made.stderr.trim()}`;
  spawnSync('ip', ['netns', 'delete', probe]);
  return null;
}

export interface TestHost {
  namespace: string;
  address: string;
  /** Command line that runs `command` on the host. */
  commandLine(command: readonly string[]): string[];
  pullCable(): void;
  plugCable(): void;
  /** As a lease that ends and another one that comes; null: there was, or is, none. */
  changeAddress(from: string | null, to: string | null): void;
}

function ip(...args: string[]): void {
  execFileSync('ip', args, { stdio: ['ignore', 'ignore', 'pipe'] });
}

/** Hosts on one Ethernet: a namespace each, joined by a bridge in a namespace of its own. Multicast passes. */
export class TestNetwork {
  private readonly bridgeNamespace: string;
  private readonly namespaces: string[] = [];

  constructor(private readonly name: string) {
    this.bridgeNamespace = `${name}-bridge`;
    this.addNamespace(this.bridgeNamespace);
    ip('-n', this.bridgeNamespace, 'link', 'add', 'bridge0', 'type', 'bridge', 'mcast_snooping', '0');
    ip('-n', this.bridgeNamespace, 'link', 'set', 'bridge0', 'up');
  }

  private addNamespace(namespace: string): void {
    ip('netns', 'add', namespace);
    this.namespaces.push(namespace);
    ip('-n', namespace, 'link', 'set', 'lo', 'up');
  }

  addHost(): TestHost {
    const number = this.namespaces.length;
    const namespace = `${this.name}-host${number}`;
    const port = `port${number}`;
    const address = `${SUBNET}.${number}`;
    this.addNamespace(namespace);
    ip('-n', this.bridgeNamespace, 'link', 'add', port, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', namespace);
    ip('-n', this.bridgeNamespace, 'link', 'set', port, 'master', 'bridge0', 'up');
    ip('-n', namespace, 'address', 'add', `${address}/${PREFIX_BITS}`, 'dev', 'eth0');
    ip('-n', namespace, 'link', 'set', 'eth0', 'up');
    const setCable = (state: 'up' | 'down') => ip('-n', this.bridgeNamespace, 'link', 'set', port, state);
    return {
      namespace,
      address,
      commandLine: (command) => ['ip', 'netns', 'exec', namespace, ...command],
      pullCable: () => setCable('down'),
      plugCable: () => setCable('up'),
      changeAddress: (from, to) => {
        if (from !== null) ip('-n', namespace, 'address', 'del', `${from}/${PREFIX_BITS}`, 'dev', 'eth0');
        if (to !== null) ip('-n', namespace, 'address', 'add', `${to}/${PREFIX_BITS}`, 'dev', 'eth0');
      },
    };
  }

  /** Removes everything; processes still running there keep their namespace until they end. */
  remove(): void {
    for (const namespace of this.namespaces.splice(0)) spawnSync('ip', ['netns', 'delete', namespace]);
  }
}
