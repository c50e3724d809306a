import type { Command } from 'commander';
import { findMains } from '../shared/discovery/index.js';
import { OdmoeError } from '../shared/errors/index.js';

/** What addMainFlags gives a command's action. */
export interface MainFlags {
  main?: string;
  cluster?: string;
  interface?: string;
}

/** How long mDNS answers are awaited; mains on one LAN answer within a tenth of it. */
const DISCOVERY_TIMEOUT_MS = 1500;

/** The flags by which `prompt`, `status` and `top` are told which cluster is meant. */
export function addMainFlags(command: Command): Command {
  return command
    .option('--main <host:port>', 'address of the main node (default: found by mDNS)')
    .option('--cluster <name>', 'with mDNS: only this cluster')
    .option('--interface <ip>', 'with mDNS: the network interface to use, by its IPv4 address');
}

/** Address of the main that is meant. Throws NO_MAIN when mDNS finds none, USAGE when it finds several. */
export async function resolveMainAddress(flags: MainFlags): Promise<string> {
  if (flags.main !== undefined) return flags.main;
  const mains = await findMains(flags.cluster ?? null, DISCOVERY_TIMEOUT_MS, flags.interface ?? null);
  const [only, ...others] = mains;
  if (only === undefined) {
    const which = flags.cluster === undefined ? 'main node' : `main node of cluster "${flags.cluster}"`;
    throw new OdmoeError(
      'NO_MAIN',
      `no ${which} answered on this network; start one (odmoe up), give its address with --main HOST:PORT, or run odmoe doctor`,
    );
  }
  if (others.length === 0) return only.address;
  const list = mains.map(
    (peer) => `\n  --main ${peer.address}   (cluster "${peer.cluster}", ${peer.id}, ${peer.modelName})`,
  );
  throw new OdmoeError('USAGE', `${mains.length} main nodes answered; say which one:${list.join('')}`);
}
