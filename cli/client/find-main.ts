import type { Command } from 'commander';
import { askAuthority } from '../../engine/trust/ask-authority.js';
import { defaultPort } from '../../shared/settings/cluster-config.js';
import { findMains } from '../../shared/transport/discovery/discovery.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { formatAddress, parseAddress } from '../../shared/wire/addresses.js';
import { identifyPeer } from '../../shared/transport/node-clients.js';
import { mainOfThisHost, reachAsOperator, type ReachedMain } from './operator-access.js';
import { runtime, transport } from './process-runtime.js';

export type { ReachedMain } from './operator-access.js';

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

/** Adds the flags with which commands choose a cluster. */
export function addMainFlags(command: Command): Command {
  return command
    .option(
      '--main <host:port>',
      'address of the main node (default: one of this machine whose operator you are, else the one mDNS finds)',
    )
    .option('--cluster <name>', 'without --main: only this cluster')
    .option('--interface <ip>', 'with mDNS: the network interface to use, by its IPv4 address');
}

/**
 * The main to ask, and the way to it: the given one, else one of this host by its operator's socket, else the one that mDNS finds, else one on this
 * machine without an mDNS advertisement. In a cluster with an authority only its operators get a way.
 * @throws NO_MAIN there is none; USAGE several answer, or --main is malformed; TRUST_REFUSED this user is no operator of its cluster
 */
export async function findMain(flags: MainFlags): Promise<ReachedMain> {
  if (flags.main !== undefined) {
    const { host, port } = parseAddress(flags.main);
    return reach(formatAddress(host, port));
  }
  const cluster = flags.cluster ?? null;
  const own = await mainOfThisHost(cluster);
  if (own !== null) return own;
  const mains = await findMains(runtime, cluster, DISCOVERY_TIMEOUT_MS, flags.interface ?? null);
  const [only, ...others] = mains;
  if (only === undefined) return unadvertisedMain(cluster);
  if (others.length === 0) return reach(only.address);
  const list = mains.map(
    (peer) => `\n  --main ${peer.address}   (cluster "${peer.cluster}", ${peer.id}, ${peer.modelName})`,
  );
  throw new OdmoeError(
    'USAGE',
    `${mains.length} main nodes answered; say which one, by --main or --cluster:${list.join('')}`,
  );
}

/** A main that speaks TLS is reached as an operator; another one is asked in plaintext. */
async function reach(address: string): Promise<ReachedMain> {
  const authority = await askAuthority(address, { runtime });
  return authority === null ? { address, transport } : reachAsOperator(address, authority);
}

/** A main of this machine that nobody advertises. Throws NO_MAIN, TRUST_REFUSED. */
async function unadvertisedMain(cluster: string | null): Promise<ReachedMain> {
  const authority = await askAuthority(LOCAL_MAIN_ADDRESS, { runtime }).catch((thrown: unknown) => {
    if (thrown instanceof OdmoeError) return undefined;
    throw thrown;
  });
  const isOfCluster = (name: string): boolean => cluster === null || name === cluster;
  if (authority !== undefined && authority !== null && isOfCluster(authority.cluster)) {
    return reachAsOperator(LOCAL_MAIN_ADDRESS, authority);
  }
  if (authority === null && (await answersAsMain(LOCAL_MAIN_ADDRESS, cluster))) {
    return { address: LOCAL_MAIN_ADDRESS, transport };
  }
  const which = cluster === null ? 'main node' : `main node of cluster "${cluster}"`;
  throw new OdmoeError(
    'NO_MAIN',
    `no ${which} answered on this network or at ${LOCAL_MAIN_ADDRESS}; start one (odmoe up), give its address with --main HOST:PORT, or run odmoe doctor`,
  );
}

/** Tells whether a main node (of the cluster, unless null) answers at the address. */
async function answersAsMain(address: string, cluster: string | null): Promise<boolean> {
  try {
    const identity = await identifyPeer(transport, address, LOCAL_MAIN_TIMEOUT_MS);
    return identity.role === 'ROLE_MAIN' && (cluster === null || identity.cluster === cluster);
  } catch (error) {
    if (error instanceof OdmoeError) return false;
    throw error;
  }
}
