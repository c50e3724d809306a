import type { Command } from 'commander';
import { defaultPort } from '../../shared/settings/cluster-config.js';
import { findMains } from '../../shared/transport/discovery/discovery.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { formatAddress, parseAddress } from '../../shared/wire/addresses.js';
import { runtime, transport } from './process-runtime.js';
import { identifyPeer } from '../../shared/transport/node-clients.js';

/** The flags from addMainFlags, for a command's action. */
export interface MainFlags {
  main?: string;
  cluster?: string;
  interface?: string;
}

/** Time for mDNS answers; mains on one LAN answer within a tenth of it. */
const DISCOVERY_TIMEOUT_MS = 1500;

const LOCAL_MAIN_ADDRESS = `127.0.0.1:${defaultPort('main')}`;
/** A refused connection is noticed at once, but a busy main may take a while. */
const LOCAL_MAIN_TIMEOUT_MS = 10_000;

/** Adds the flags with which `prompt`, `status` and `top` choose a cluster. */
export function addMainFlags(command: Command): Command {
  return command
    .option('--main <host:port>', 'address of the main node (default: the one mDNS finds, else one on this machine)')
    .option('--cluster <name>', 'with mDNS: only this cluster')
    .option('--interface <ip>', 'with mDNS: the network interface to use, by its IPv4 address');
}

/**
 * Returns the address of main: the given one, else the one that mDNS finds, else one on this machine without an mDNS advertisement.
 * Throws NO_MAIN when there is none, USAGE when mDNS finds several or --main is malformed.
 */
export async function resolveMainAddress(flags: MainFlags): Promise<string> {
  if (flags.main !== undefined) {
    const { host, port } = parseAddress(flags.main);
    return formatAddress(host, port);
  }
  const mains = await findMains(runtime, flags.cluster ?? null, DISCOVERY_TIMEOUT_MS, flags.interface ?? null);
  const [only, ...others] = mains;
  if (only === undefined) {
    if (await answersAsMain(LOCAL_MAIN_ADDRESS, flags.cluster ?? null)) return LOCAL_MAIN_ADDRESS;
    const which = flags.cluster === undefined ? 'main node' : `main node of cluster "${flags.cluster}"`;
    throw new OdmoeError(
      'NO_MAIN',
      `no ${which} answered on this network or at ${LOCAL_MAIN_ADDRESS}; start one (odmoe up), give its address with --main HOST:PORT, or run odmoe doctor`,
    );
  }
  if (others.length === 0) return only.address;
  const list = mains.map(
    (peer) => `\n  --main ${peer.address}   (cluster "${peer.cluster}", ${peer.id}, ${peer.modelName})`,
  );
  throw new OdmoeError(
    'USAGE',
    `${mains.length} main nodes answered; say which one, by --main or --cluster:${list.join('')}`,
  );
}

/** Tells whether a main node (of the cluster, unless null) answers at the address. */
export async function answersAsMain(address: string, cluster: string | null): Promise<boolean> {
  try {
    const identity = await identifyPeer(transport, address, LOCAL_MAIN_TIMEOUT_MS);
    return identity.role === 'ROLE_MAIN' && (cluster === null || identity.cluster === cluster);
  } catch (error) {
    if (error instanceof OdmoeError) return false;
    throw error;
  }
}
