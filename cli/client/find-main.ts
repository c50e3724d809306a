import type { Command } from 'commander';
import { type FoundMain, LOCAL_MAIN_ADDRESS, mainAt, SEARCH_MS } from '../../engine/daemon/find-cluster.js';
import { askAuthority } from '../../engine/trust/ask-authority.js';
import { findMains } from '../../shared/transport/discovery/discovery.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { formatAddress, parseAddress } from '../../shared/wire/addresses.js';
import { LOCAL_MAIN_TIMEOUT_MS, mainOfThisHost, reachAsOperator, type ReachedMain } from './operator-access.js';
import { runtime, transport } from './process-runtime.js';

export type { ReachedMain } from './operator-access.js';

/** The flags from addMainFlags, for a command's action. */
export interface MainFlags {
  main?: string;
  cluster?: string;
  interface?: string;
}

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
  const mains = await findMains(runtime, cluster, SEARCH_MS, flags.interface ?? null);
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
  return reachFound({ address, authority: await askAuthority(address, { runtime }) });
}

function reachFound({
  address,
  authority,
}: Pick<FoundMain, 'address' | 'authority'>): Promise<ReachedMain> | ReachedMain {
  return authority === null ? { address, transport } : reachAsOperator(address, authority);
}

/** A main of this machine that nobody advertises. Throws NO_MAIN, TRUST_REFUSED. */
async function unadvertisedMain(cluster: string | null): Promise<ReachedMain> {
  const context = { runtime, abandoned: new AbortController().signal };
  const main = await mainAt(LOCAL_MAIN_ADDRESS, context, LOCAL_MAIN_TIMEOUT_MS);
  if (main !== null && (cluster === null || main.cluster === cluster)) return reachFound(main);
  const which = cluster === null ? 'main node' : `main node of cluster "${cluster}"`;
  throw new OdmoeError(
    'NO_MAIN',
    `no ${which} answered on this network or at ${LOCAL_MAIN_ADDRESS}; start one (odmoe up), give its address with --main HOST:PORT, or run odmoe doctor`,
  );
}
