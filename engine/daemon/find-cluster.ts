/** Finds the main whose cluster a daemon is to join: at the address that it was given, on this host, by mDNS, or by its name. */
import { readdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { operatorSocketPath } from '../../shared/base/files/state-directory.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { isClusterName } from '../../shared/base/text/identifier.js';
import { defaultPort } from '../../shared/settings/cluster-config.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { findMains } from '../../shared/transport/discovery/discovery.js';
import { httpAtAddress } from './http-at-address.js';
import { namedMains } from './name-discovery.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { identifyPeer } from '../../shared/transport/node-clients.js';
import { SHORT_DIGEST_DIGITS } from '../../shared/transport/trust/certificate.js';
import { dialAddress, formatAddress, socketAddress } from '../../shared/wire/addresses.js';
import { askAuthority, type ShownAuthority } from '../trust/ask-authority.js';
import { authorityDirectory } from '../trust/authority-files.js';
import { hasJoined } from '../trust/identity-files.js';

/** A main that answers. */
export interface FoundMain {
  readonly address: string;
  readonly cluster: string;
  /** The authority that it shows; null: its cluster has none. */
  readonly authority: ShownAuthority | null;
  /** The operator's socket of a main on this host whose files this user can read; null: it has none, or is elsewhere. */
  readonly socketPath: string | null;
}

export interface FindContext {
  readonly runtime: Runtime;
  /** Aborts when the daemon is not to start any more. */
  readonly abandoned: AbortSignal;
  /** Tells the user one line. */
  readonly say: (text: string) => void;
}

/** The cluster that a daemon may join. */
export interface WantedCluster {
  /** null: any. */
  readonly cluster: string | null;
  /** Digest of the authority that its token names; null: any. */
  readonly authorityDigest: string | null;
}

type Place = Pick<NodeSettings, 'stateDirectory' | 'mainAddress'> & {
  readonly discovery: Pick<NodeSettings['discovery'], 'provider' | 'interfaceAddress' | 'name'>;
};

/** Time for mDNS answers of one search; mains on one LAN answer within a tenth of it. */
export const SEARCH_MS = 1500;
const PAUSE_MS = 1000;
const IDENTIFY_TIMEOUT_MS = 2000;
const LOOPBACK = '127.0.0.1';
/** The address of a main on this host that nobody advertises. */
export const LOCAL_MAIN_ADDRESS = formatAddress(LOOPBACK, defaultPort('main'));

/**
 * Waits until a main of the wanted cluster answers. `mayJoin` null: it may be joined; a text: why not, which is told once, and the search goes on.
 * @throws CONFIG_INVALID several clusters answer, and none is named; JOIN_TOKEN_INVALID main answers at its given address, and the token is of another
 *   authority; CANCELLED
 */
export async function waitForMain(
  place: Place,
  wanted: WantedCluster,
  mayJoin: (main: FoundMain) => string | null,
  context: FindContext,
): Promise<FoundMain> {
  const { runtime, abandoned, say } = context;
  let told = '';
  const tell = (text: string): void => {
    if (text !== told) say(text);
    told = text;
  };
  for (;;) {
    const found = await lookForMains(place, wanted, context);
    if (abandoned.aborted) throw new OdmoeError('CANCELLED', 'the daemon was stopped while it waited for main');
    const chosen = chooseMain(found, wanted);
    if (chosen === null) requireTokenOfGiven(place, wanted, found);
    const obstacle = chosen === null ? await nothingFound(place, wanted, found, context) : mayJoin(chosen);
    if (chosen !== null && obstacle === null) return chosen;
    tell(`waiting for main: ${obstacle ?? ''}`);
    await runtime.sleep(PAUSE_MS, abandoned);
  }
}

/** A main at an address that was given never gets another authority while one waits for it. */
function requireTokenOfGiven(
  { mainAddress }: Place,
  { authorityDigest }: WantedCluster,
  found: readonly FoundMain[],
): void {
  if (mainAddress === null || authorityDigest === null) return;
  const others = found.filter(({ authority }) => authority !== null && authority.digest !== authorityDigest);
  if (others.length > 0) throw new OdmoeError('JOIN_TOKEN_INVALID', otherAuthorities(others, authorityDigest));
}

async function nothingFound(
  { mainAddress, discovery }: Place,
  wanted: WantedCluster,
  others: readonly FoundMain[],
  { runtime, abandoned: signal }: FindContext,
): Promise<string> {
  const which = wanted.cluster === null ? 'main' : `main of "${wanted.cluster}"`;
  if (others.length > 0 && wanted.authorityDigest !== null) return otherAuthorities(others, wanted.authorityDigest);
  if (mainAddress !== null) {
    return (await httpAtAddress(mainAddress, { runtime, signal })) ?? `none answers at ${mainAddress}`;
  }
  const where = {
    mdns: 'is heard on this network or',
    static: 'is configured, and none',
    dns: `answers under the name ${discovery.name ?? ''}, and none`,
  }[discovery.provider];
  const elsewhere = discovery.provider === 'mdns' ? ' (on another machine with --lan, or nobody hears it)' : '';
  return `no ${which} ${where} answers on this host; start it${elsewhere}, or give its address by --main HOST:PORT`;
}

/** The words for mains of which none is of the authority that a token names. Pure. */
export function otherAuthorities(
  others: readonly Pick<FoundMain, 'address' | 'cluster' | 'authority'>[],
  authorityDigest: string,
): string {
  const digits = (digest: string | undefined): string =>
    digest === undefined ? 'no authority' : digest.slice(0, SHORT_DIGEST_DIGITS);
  const list = others.map((main) => `"${main.cluster}" at ${main.address} of ${digits(main.authority?.digest)}`);
  return `the token is of the authority ${digits(authorityDigest)}, and those that answer are of others (${list.sort().join(', ')}): give --main HOST:PORT of the main that made the token, or a token of one of these`;
}

function isWanted({ cluster, authority }: FoundMain, wanted: WantedCluster): boolean {
  if (wanted.cluster !== null && cluster !== wanted.cluster) return false;
  return wanted.authorityDigest === null || authority?.digest === wanted.authorityDigest;
}

/** The one main of the wanted cluster; null: there is none. Throws CONFIG_INVALID where several clusters answer. Pure. */
export function chooseMain(found: readonly FoundMain[], wanted: WantedCluster): FoundMain | null {
  const fitting = found.filter((main) => isWanted(main, wanted));
  const clusters = new Map<string, FoundMain>();
  for (const main of fitting) {
    const key = `${main.cluster} ${main.authority?.digest ?? ''}`;
    const before = clusters.get(key);
    if (before === undefined || (before.socketPath === null && main.socketPath !== null)) clusters.set(key, main);
  }
  const [first, ...others] = clusters.values();
  if (first === undefined) return null;
  if (others.length === 0) return first;
  const list = [first, ...others].map(({ cluster, address }) => `"${cluster}" at ${address}`).join(', ');
  throw new OdmoeError(
    'CONFIG_INVALID',
    `several clusters answer (${list}): say which one to join, by --cluster, or by --main HOST:PORT`,
  );
}

/** One search: every main that answers. By mDNS or by names only where none of this host is wanted. */
export async function lookForMains(
  place: Place,
  wanted: WantedCluster,
  context: Pick<FindContext, 'runtime' | 'abandoned'>,
): Promise<FoundMain[]> {
  const { mainAddress, stateDirectory, discovery } = place;
  const local = await mainsOfThisHost(stateDirectory, wanted.cluster, context);
  if (mainAddress !== null) {
    const given = await mainAt(mainAddress, context);
    if (given === null) return [];
    return [local.find(({ authority }) => isSame(authority, given.authority)) ?? given];
  }
  const heard = local.some((main) => isWanted(main, wanted))
    ? []
    : await advertisedMains(discovery, wanted.cluster, context.runtime);
  const addresses = new Set([...heard, LOCAL_MAIN_ADDRESS]);
  const answers = await Promise.all([...addresses].map((address) => mainAt(address, context)));
  return [...local, ...answers.filter((main) => main !== null)];
}

async function advertisedMains(
  { provider, interfaceAddress, name }: Place['discovery'],
  cluster: string | null,
  runtime: Runtime,
): Promise<string[]> {
  if (provider === 'dns') return namedMains(name);
  if (provider === 'static') return [];
  const heard = await findMains(runtime, cluster, SEARCH_MS, interfaceAddress);
  return heard.map(({ address }) => address);
}

function isSame(one: ShownAuthority | null, other: ShownAuthority | null): boolean {
  return one !== null && one.digest === other?.digest;
}

/** The main at an address; null: none answers. */
export async function mainAt(
  address: string,
  { runtime, abandoned }: Pick<FindContext, 'runtime' | 'abandoned'>,
  identifyTimeoutMs = IDENTIFY_TIMEOUT_MS,
): Promise<FoundMain | null> {
  try {
    const authority = await askAuthority(address, { runtime, signal: abandoned });
    if (authority !== null) return { address, cluster: authority.cluster, authority, socketPath: null };
    const identity = await identifyPeer(new GrpcTransport(runtime), address, identifyTimeoutMs, abandoned);
    // The name becomes that of a directory.
    if (identity.role !== 'ROLE_MAIN' || !isClusterName(identity.cluster)) return null;
    return { address, cluster: identity.cluster, authority: null, socketPath: null };
  } catch (thrown) {
    if (thrown instanceof OdmoeError) return null;
    throw thrown;
  }
}

/** The mains of this host that serve an operator's socket to this user. */
async function mainsOfThisHost(
  stateDirectory: string,
  cluster: string | null,
  context: Pick<FindContext, 'runtime' | 'abandoned'>,
): Promise<FoundMain[]> {
  const directories = await localAuthorities(stateDirectory, cluster);
  const mains = await Promise.all(directories.map((directory) => mainOfDirectory(directory, context)));
  return mains.filter((main) => main !== null);
}

async function mainOfDirectory(
  directory: string,
  context: Pick<FindContext, 'runtime' | 'abandoned'>,
): Promise<FoundMain | null> {
  const { runtime, abandoned } = context;
  const path = operatorSocketPath(directory);
  if (!(await fileExists(path))) return null;
  try {
    const transport = new GrpcTransport(runtime);
    const { address } = await identifyPeer(transport, socketAddress(path), IDENTIFY_TIMEOUT_MS, abandoned);
    const main = await mainAt(dialAddress(address, LOOPBACK), context);
    return main === null ? null : { ...main, socketPath: path };
  } catch (thrown) {
    if (thrown instanceof OdmoeError) return null;
    throw thrown;
  }
}

/** The state directories with an authority: that of the cluster, or those of all clusters. `stateDirectory`: that of any cluster. */
export async function localAuthorities(stateDirectory: string, cluster: string | null): Promise<string[]> {
  const found: string[] = [];
  for (const directory of await clusterDirectories(stateDirectory, cluster)) {
    if (await fileExists(authorityDirectory(directory))) found.push(directory);
  }
  return found;
}

/** The state directories of the cluster, or of all clusters that have one here. `stateDirectory`: that of any cluster. */
async function clusterDirectories(stateDirectory: string, cluster: string | null): Promise<string[]> {
  const home = dirname(stateDirectory);
  if (cluster !== null) return [join(home, cluster)];
  const names = await readdir(home).catch((thrown: unknown) => {
    // Those of another user are not this user's to use.
    if (['ENOENT', 'EACCES'].includes(systemErrorCode(thrown))) return [];
    throw toOdmoeError(thrown);
  });
  return names.filter(isClusterName).map((name) => join(home, name));
}

/** The state directories of the clusters in which a daemon of this id has joined on this host. `stateDirectory`: that of any cluster. */
export async function joinedClusters(stateDirectory: string, id: string): Promise<string[]> {
  const directories = await clusterDirectories(stateDirectory, null);
  const joined: string[] = [];
  for (const directory of directories) if (await hasJoined(directory, id)) joined.push(directory);
  return joined;
}
