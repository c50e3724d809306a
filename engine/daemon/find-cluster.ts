/** Finds the main whose cluster a daemon is to join: at the address that it was given, on this host, by mDNS, or by its name. */
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { operatorSocketPath } from '../../shared/base/files/state-directory.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { isClusterName } from '../../shared/base/text/identifier.js';
import { defaultPort } from '../../shared/settings/cluster-config.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { findMains } from '../../shared/transport/discovery/discovery.js';
import { knownAuthorities, localAuthorities } from './cluster-directories.js';
import { httpAtAddress } from './http-at-address.js';
import { namedMains } from './name-discovery.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { identifyPeer } from '../../shared/transport/node-clients.js';
import { SHORT_DIGEST_DIGITS } from '../../shared/transport/trust/certificate.js';
import { dialAddress, formatAddress, socketAddress } from '../../shared/wire/addresses.js';
import { askAuthority, FalseMainError, type ShownAuthority } from '../trust/ask-authority.js';
import { authorityWords } from '../trust/authority-words.js';

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
 * If several authorities answer, the daemon joins the one that its host knows. It joins none of several strangers, and the search goes on.
 * @throws JOIN_TOKEN_INVALID main answers at its given address, and the token is of another authority, or it is of another cluster than the
 *   named one; TRUST_REFUSED what answers at the given address shows an authority that is not its own; CANCELLED
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
    const search = await lookForMains(place, wanted, context);
    if (abandoned.aborted) throw new OdmoeError('CANCELLED', 'the daemon was stopped while it waited for main');
    // The user gave this address, and something else than main answers there.
    if (search.failure instanceof FalseMainError) throw search.failure;
    requireNameOfToken(wanted, search.mains);
    const fitting = fittingMains(search.mains, wanted);
    if (fitting.length === 0) requireTokenOfGiven(place, wanted, search.mains);
    const known = fitting.length > 1 ? await knownAuthorities(place.stateDirectory) : NONE_KNOWN;
    const chosen = chooseMain(fitting, known);
    const obstacle =
      chosen !== null
        ? mayJoin(chosen)
        : fitting.length > 1
          ? severalAnswer(fitting, wanted)
          : await nothingFound(place, wanted, search, context);
    if (chosen !== null && obstacle === null) return chosen;
    tell(`waiting for main: ${obstacle ?? ''}`);
    await runtime.sleep(PAUSE_MS, abandoned);
  }
}

/** An authority is of one cluster for ever, so a token of another cluster than the named one is never good. */
function requireNameOfToken({ cluster, authorityDigest }: WantedCluster, found: readonly FoundMain[]): void {
  if (cluster === null || authorityDigest === null) return;
  const maker = found.find(({ authority }) => authority?.digest === authorityDigest);
  if (maker === undefined || maker.cluster === cluster) return;
  const text = `the token is of "${maker.cluster}" (main at ${maker.address}), and the cluster is to be "${cluster}": correct --cluster, or give a token of "${cluster}"`;
  throw new OdmoeError('JOIN_TOKEN_INVALID', text);
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
  { mains: others, failure }: Search,
  { runtime, abandoned: signal }: FindContext,
): Promise<string> {
  const which = wanted.cluster === null ? 'main' : `main of "${wanted.cluster}"`;
  if (others.length > 0 && wanted.authorityDigest !== null) return otherAuthorities(others, wanted.authorityDigest);
  if (mainAddress !== null) {
    const isTold = failure !== null && !SILENCE.has(failure.code);
    const why = isTold ? failure.message : `none answers at ${mainAddress}`;
    return (await httpAtAddress(mainAddress, { runtime, signal })) ?? why;
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

/** The mains that may be joined, one of each authority. Pure. */
export function fittingMains(found: readonly FoundMain[], wanted: WantedCluster): FoundMain[] {
  const clusters = new Map<string, FoundMain>();
  for (const main of found.filter((each) => isWanted(each, wanted))) {
    const key = `${main.cluster} ${main.authority?.digest ?? ''}`;
    const before = clusters.get(key);
    if (before === undefined || (before.socketPath === null && main.socketPath !== null)) clusters.set(key, main);
  }
  return [...clusters.values()];
}

const NONE_KNOWN: ReadonlySet<string> = new Set();

/** The only one of them, or of several the only one whose authority this host knows (`known`: digests); null: there is none such. Pure. */
export function chooseMain(fitting: readonly FoundMain[], known: ReadonlySet<string>): FoundMain | null {
  if (fitting.length <= 1) return fitting[0] ?? null;
  const own = fitting.filter(
    ({ authority, socketPath }) => socketPath !== null || (authority !== null && known.has(authority.digest)),
  );
  return own.length === 1 ? (own[0] ?? null) : null;
}

const LISTED_LIMIT = 8;

/** The words for several of which this host knows none, or more than one. */
function severalAnswer(fitting: readonly FoundMain[], { cluster }: WantedCluster): string {
  const list = fitting.map((main) => {
    const words = main.authority === null ? 'no authority' : `words: ${authorityWords(main.authority.digest)}`;
    return `"${main.cluster}" at ${main.address}, ${words}`;
  });
  const more = list.length > LISTED_LIMIT ? `; ${list.length - LISTED_LIMIT} more` : '';
  const name = cluster === null ? '--cluster, ' : '';
  return `several clusters answer (${list.sort().slice(0, LISTED_LIMIT).join('; ')}${more}): compare the words with those that odmoe status shows on main, and say which one by ${name}--main HOST:PORT, or give a token of it`;
}

/** The result of one search. */
export interface Search {
  readonly mains: FoundMain[];
  /** Why no main answers at the address that was given; null: one does, or none was given. */
  readonly failure: OdmoeError | null;
}

/** Failures of an address where nothing speaks. */
const SILENCE: ReadonlySet<ErrorCode> = new Set(['NO_MAIN', 'TIMEOUT', 'CANCELLED']);

/** One search: every main that answers. By mDNS or by names only where none of this host is wanted. */
export async function lookForMains(
  place: Place,
  wanted: WantedCluster,
  context: Pick<FindContext, 'runtime' | 'abandoned'>,
): Promise<Search> {
  const { mainAddress, stateDirectory, discovery } = place;
  // A token names its cluster better than its user does.
  const cluster = wanted.authorityDigest === null ? wanted.cluster : null;
  const local = await mainsOfThisHost(stateDirectory, cluster, context);
  if (mainAddress !== null) {
    const given = await answerAt(mainAddress, context);
    if (given instanceof OdmoeError) return { mains: [], failure: given };
    return { mains: [local.find(({ authority }) => isSame(authority, given.authority)) ?? given], failure: null };
  }
  const heard = local.some((main) => isWanted(main, wanted))
    ? []
    : await advertisedMains(discovery, cluster, context.runtime);
  const addresses = new Set([...heard, LOCAL_MAIN_ADDRESS]);
  const answers = await Promise.all([...addresses].map((address) => mainAt(address, context)));
  return { mains: [...local, ...answers.filter((main) => main !== null)], failure: null };
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
  context: Pick<FindContext, 'runtime' | 'abandoned'>,
  identifyTimeoutMs?: number,
): Promise<FoundMain | null> {
  const answer = await answerAt(address, context, identifyTimeoutMs);
  return answer instanceof OdmoeError ? null : answer;
}

/**
 * The main at an address that a daemon was given; null: none answers.
 * @throws TRUST_REFUSED what answers shows an authority that is not its own
 */
export async function givenMain(
  address: string,
  context: Pick<FindContext, 'runtime' | 'abandoned'>,
): Promise<FoundMain | null> {
  const answer = await answerAt(address, context);
  if (answer instanceof FalseMainError) throw answer;
  return answer instanceof OdmoeError ? null : answer;
}

/** The main at an address, or why none answers there. */
async function answerAt(
  address: string,
  { runtime, abandoned }: Pick<FindContext, 'runtime' | 'abandoned'>,
  identifyTimeoutMs = IDENTIFY_TIMEOUT_MS,
): Promise<FoundMain | OdmoeError> {
  try {
    const authority = await askAuthority(address, { runtime, signal: abandoned });
    if (authority !== null) return { address, cluster: authority.cluster, authority, socketPath: null };
    const identity = await identifyPeer(new GrpcTransport(runtime), address, identifyTimeoutMs, abandoned);
    // The name becomes that of a directory.
    if (identity.role === 'ROLE_MAIN' && isClusterName(identity.cluster)) {
      return { address, cluster: identity.cluster, authority: null, socketPath: null };
    }
    return new OdmoeError('TRUST_REFUSED', `the daemon at ${address} lets no machines in: give main's address`);
  } catch (thrown) {
    if (thrown instanceof OdmoeError) return thrown;
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
