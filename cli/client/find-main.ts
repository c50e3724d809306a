import type { Command } from 'commander';
import { LOCAL_MAIN_ADDRESS, mainAt, SEARCH_MS } from '../../engine/daemon/find-cluster.js';
import { httpAtAddress } from '../../engine/daemon/http-at-address.js';
import { askAuthority } from '../../engine/trust/ask-authority.js';
import { findMains } from '../../shared/transport/discovery/discovery.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { identifyPeer } from '../../shared/transport/node-clients.js';
import { askedMain, type AskedMain, type ChoosingFlags, DEFAULT_CONFIG_PATH, MAIN_VARIABLE } from './asked-main.js';
import { knownClusters, requirePlaintextAllowed } from './known-clusters.js';
import { whileFinding } from './main-wait.js';
import { LOCAL_MAIN_TIMEOUT_MS, mainOfThisHost, reachAsOperator, type ReachedMain } from './operator-access.js';
import { runtime, transport } from './process-runtime.js';

export type { ReachedMain } from './operator-access.js';

/** The flags from addMainFlags, for a command's action. */
export interface MainFlags extends ChoosingFlags {
  insecure?: boolean;
}

/** Adds the flags with which commands choose a cluster. */
export function addMainFlags(command: Command): Command {
  return command
    .option(
      '--main <host:port>',
      `address of the main node (default: that of ${MAIN_VARIABLE}, else of ./${DEFAULT_CONFIG_PATH}, else one of this machine whose operator you are, else the one mDNS finds)`,
    )
    .option(
      '--config <file>',
      `ask the main of this configuration (default: ./${DEFAULT_CONFIG_PATH}, where there is one)`,
    )
    .option('--cluster <name>', 'without --main: only this cluster')
    .option('--interface <ip>', 'with mDNS: the network interface to use, by its IPv4 address')
    .option('--insecure', 'ask a main that has no authority, although you know clusters that have one');
}

/**
 * The main to ask, and the way to it: the given one, else one of this host by its operator's socket, else that of the configuration, else the one
 * that mDNS finds, else one on this machine without an mDNS advertisement. In a cluster with an authority only its operators get a way. Of several
 * that mDNS finds, those of an authority that this user knows come before others, who can take any name.
 * @throws NO_MAIN there is none; USAGE several answer, or what names it is malformed; CONFIG_INVALID; TRUST_REFUSED this user is no operator of its
 *   cluster; TLS_MISMATCH it speaks plaintext, and may be somebody else's (requirePlaintextAllowed)
 */
export async function findMain(flags: MainFlags): Promise<ReachedMain> {
  const asked = askedMain(flags);
  return whileFinding(asked.address ?? asked.configured, () => mainOf(asked, flags));
}

async function mainOf(asked: AskedMain, flags: MainFlags): Promise<ReachedMain> {
  if (asked.address !== null) return reach(asked.address, flags);
  const own = await mainOfThisHost(asked.cluster);
  if (own !== null) return own;
  try {
    return asked.configured === null ? await foundMain(asked, flags) : await reach(asked.configured, flags);
  } catch (thrown) {
    const error = toOdmoeError(thrown);
    if (error.code !== 'NO_MAIN' || asked.path === null || flags.config !== undefined) throw error;
    const why = `${asked.path} names it, as the configuration of this directory; --main or --cluster asks another one`;
    throw new OdmoeError('NO_MAIN', `${error.message} (${why})`, { cause: thrown });
  }
}

async function foundMain({ cluster, interfaceAddress }: AskedMain, flags: MainFlags): Promise<ReachedMain> {
  const heard = await findMains(runtime, cluster, SEARCH_MS, interfaceAddress);
  const known = await knownClusters();
  const ofKnown = heard.filter(({ authority }) => known.some((each) => each.authority === authority));
  const mains = ofKnown.length > 0 ? ofKnown : heard;
  const [only, ...others] = mains;
  if (only === undefined) return unadvertisedMain(cluster, flags);
  if (others.length === 0) return reach(only.address, flags);
  const list = mains.map(
    (peer) => `\n  --main ${peer.address}   (cluster "${peer.cluster}", ${peer.id}, ${peer.modelName})`,
  );
  throw new OdmoeError(
    'USAGE',
    `${mains.length} main nodes answered; say which one, by --main or --cluster:${list.join('')}`,
  );
}

/** A main that speaks TLS is reached as an operator; another one is asked in plaintext. */
async function reach(address: string, flags: MainFlags): Promise<ReachedMain> {
  const authority = await askAuthority(address, { runtime });
  if (authority !== null) return reachAsOperator(address, authority);
  const elsewhere = await httpAtAddress(address, { runtime });
  if (elsewhere !== null) throw new OdmoeError('NO_MAIN', elsewhere);
  if (flags.insecure === true) return { address, transport };
  const known = await knownClusters();
  if (known.length > 0) {
    const { cluster } = await identifyPeer(transport, address, LOCAL_MAIN_TIMEOUT_MS);
    requirePlaintextAllowed({ address, cluster }, known);
  }
  return { address, transport };
}

/** A main of this machine that nobody advertises. Throws NO_MAIN, TRUST_REFUSED, TLS_MISMATCH. */
async function unadvertisedMain(cluster: string | null, flags: MainFlags): Promise<ReachedMain> {
  const context = { runtime, abandoned: new AbortController().signal };
  const main = await mainAt(LOCAL_MAIN_ADDRESS, context, LOCAL_MAIN_TIMEOUT_MS);
  if (main !== null && (cluster === null || main.cluster === cluster)) return reach(main.address, flags);
  const which = cluster === null ? 'main node' : `main node of cluster "${cluster}"`;
  throw new OdmoeError(
    'NO_MAIN',
    `no ${which} answered on this network or at ${LOCAL_MAIN_ADDRESS}; start one (odmoe up), give its address with --main HOST:PORT, or run odmoe doctor`,
  );
}
