/** The ways of a person to a main whose cluster has an authority: a certificate of role operator, or the operator's socket on main's host. */
import { basename } from 'node:path';
import { localAuthorities } from '../../engine/daemon/cluster-directories.js';
import type { ShownAuthority } from '../../engine/trust/ask-authority.js';
import { readAuthorityCertificate } from '../../engine/trust/authority-files.js';
import { joinedIds, type NodeCredentials, readIdentity, storeRoster } from '../../engine/trust/identity-files.js';
import { renewIfDue } from '../../engine/trust/key-renewal.js';
import { NodeTrust } from '../../engine/trust/node-trust.js';
import { operatorKeys } from '../../engine/trust/open-node-trust.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import {
  ANY_CLUSTER,
  operatorDirectory,
  operatorSocketPath,
  stateDirectory,
  stateHome,
  stateHomes,
} from '../../shared/base/files/state-directory.js';
import { isThisHost, thisHost } from '../../shared/settings/resolve-node-settings.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { identifyPeer, renewKey } from '../../shared/transport/node-clients.js';
import { standardError } from '../../shared/base/text/text-output.js';
import type { RenewReply, RenewRequest } from '../../shared/wire/messages.js';
import type { Transport } from '../../shared/transport/transport.js';
import { authorityDigest } from '../../shared/transport/trust/certificate.js';
import { operatorJoinCommand } from '../../shared/transport/trust/operator-join.js';
import { hostOf, socketAddress } from '../../shared/wire/addresses.js';
import { runtime, transport } from './process-runtime.js';

/** A main, and the way to it. */
export interface ReachedMain {
  /** "host:port", or that of the operator's socket. */
  readonly address: string;
  readonly transport: Transport;
}

/** A main of this host serves its socket at once, but a busy one may take a while. */
export const LOCAL_MAIN_TIMEOUT_MS = 10_000;

/**
 * The main of this host whose operator's socket answers this user; null: there is none. `cluster`: only that one.
 * @throws USAGE several answer
 */
export async function mainOfThisHost(cluster: string | null): Promise<ReachedMain | null> {
  const directories = await authoritiesOfThisHost(cluster);
  const answers = await Promise.all(directories.map(answeringSocket));
  const found = directories.flatMap((directory, index) => {
    const address = answers[index] ?? null;
    return address === null ? [] : [{ cluster: basename(directory), address }];
  });
  const [only, ...others] = found;
  if (only === undefined) return null;
  if (others.length === 0) return { address: only.address, transport };
  const list = found.map((main) => `\n  --cluster ${main.cluster}`);
  throw new OdmoeError(
    'USAGE',
    `the mains of ${found.length} clusters run on this host; say which one:${list.join('')}`,
  );
}

/** The way to the main at this address, whose cluster has the authority. Throws TRUST_REFUSED where this user is no operator of it. */
export async function reachAsOperator(address: string, shown: ShownAuthority): Promise<ReachedMain> {
  const credentials = await operatorCredentials(shown);
  if (credentials !== null) {
    const trust = commandTrust(credentials);
    const operator = new GrpcTransport(runtime, null, trust);
    await renewOwnKey(trust, operator, address);
    return { address, transport: operator };
  }
  const directory = await directoryOf(shown);
  const socket = directory === null ? null : await answeringSocket(directory);
  if (socket !== null) return { address: socket, transport };
  const isHere = isThisHost(hostOf(address), thisHost(stateHome(), false));
  const socketPath = directory === null ? null : operatorSocketPath(directory);
  throw new OdmoeError('TRUST_REFUSED', noWayWords({ address, cluster: shown.cluster, isHere, socketPath }));
}

/** A main that this user may not ask. */
interface ClosedMain {
  readonly address: string;
  readonly cluster: string;
  /** True: the address is one of this host. */
  readonly isHere: boolean;
  /** The operator's socket beside the authority's files, which are this user's; null: they are another user's, or elsewhere. */
  readonly socketPath: string | null;
}

/** The reason why there is no way to a main, and what to do. Pure. */
export function noWayWords({ address, cluster, isHere, socketPath }: ClosedMain): string {
  const who = `main of "${cluster}" at ${address}`;
  if (isHere && socketPath !== null) {
    return `${who} runs on this host, and its operator's socket ${socketPath} is gone or not its own: start main again, which makes it anew`;
  }
  const way = `odmoe operator add NAME, then here ${operatorJoinCommand()}`;
  if (!isHere) return `${who} lets only operators ask: on its host say ${way}`;
  return `${who} lets only operators ask: run this as the user who runs main, or become an operator: that user says ${way}`;
}

/** An operator's key renews itself when its owner asks main after 30 days. The roster that comes with it is kept: no stream brings him any. */
async function renewOwnKey(trust: NodeTrust, operator: Transport, address: string): Promise<void> {
  const limits = { timeoutMs: LOCAL_MAIN_TIMEOUT_MS };
  const certify = (request: RenewRequest): Promise<RenewReply> => renewKey(operator, address, request, limits);
  const directory = operatorDirectory(trust.cluster);
  const { id } = trust.ownPeer;
  const before = trust.signedRoster;
  try {
    await renewIfDue({ trust, keys: operatorKeys(directory, id), certify, runtime }, new AbortController().signal);
    const { signedRoster } = trust;
    if (signedRoster !== null && signedRoster !== before) await storeRoster(directory, id, signedRoster);
  } catch (thrown) {
    const { code, message } = toOdmoeError(thrown);
    standardError.write(`odmoe: the key of this operator could not be renewed, and stays good: ${message} [${code}]\n`);
  }
}

/** The newest credentials by which this user has become an operator of the authority; null: there are none. */
async function operatorCredentials({ cluster, certificate }: ShownAuthority): Promise<NodeCredentials | null> {
  const directory = operatorDirectory(cluster);
  const found: NodeCredentials[] = [];
  for (const id of await joinedIds(directory)) {
    const credentials = await readIdentity(directory, id);
    if (credentials?.authority.equals(certificate) === true) found.push(credentials);
  }
  const issuedAt = ({ peer }: NodeCredentials): number => peer.issuedAt ?? 0;
  return found.sort((one, other) => issuedAt(other) - issuedAt(one))[0] ?? null;
}

/** True: this user has become that operator of the authority before, and main at the address still takes him. Throws STORAGE_FAILED, TIMEOUT. */
export async function isOperatorAlready(
  address: string,
  { cluster, id, authorityDigest: digest }: { cluster: string; id: string; authorityDigest: string },
): Promise<boolean> {
  const credentials = await readIdentity(operatorDirectory(cluster), id);
  if (credentials === null || authorityDigest(credentials.authority) !== digest) return false;
  try {
    await identifyPeer(new GrpcTransport(runtime, null, commandTrust(credentials)), address, LOCAL_MAIN_TIMEOUT_MS);
    return true;
  } catch (thrown) {
    if (thrown instanceof OdmoeError && thrown.code === 'TRUST_REFUSED') return false;
    throw thrown;
  }
}

/** The trust with which a command asks. Main may have a newer key than the roster of the day on which the operator joined. */
export function commandTrust(credentials: NodeCredentials): NodeTrust {
  const { authority, signedRoster, peer } = credentials;
  return new NodeTrust({
    cluster: peer.cluster,
    authority,
    own: credentials,
    admission: 'not-removed',
    signedRoster,
    saveRoster: () => undefined,
  });
}

/** The directory on this host that holds the authority's files; null: it is not here, or this user may not read it. */
async function directoryOf({ cluster, certificate }: ShownAuthority): Promise<string | null> {
  for (const directory of await authoritiesOfThisHost(cluster)) {
    const isSame = await readAuthorityCertificate(directory).then(
      (own) => own.equals(certificate),
      () => false,
    );
    if (isSame) return directory;
  }
  return null;
}

/** The directories with an authority that this user may read: its own, and, for root, those of the system's services. */
export async function authoritiesOfThisHost(cluster: string | null): Promise<string[]> {
  const found = stateHomes().map((home) => localAuthorities(stateDirectory(cluster ?? ANY_CLUSTER, home), cluster));
  return (await Promise.all(found)).flat();
}

async function answeringSocket(directory: string): Promise<string | null> {
  const address = socketAddress(operatorSocketPath(directory));
  try {
    await identifyPeer(transport, address, LOCAL_MAIN_TIMEOUT_MS);
    return address;
  } catch (thrown) {
    if (!(thrown instanceof OdmoeError)) throw thrown;
    if (thrown.code !== 'TIMEOUT') return null;
    // A main that is only busy or stopped must not make a command direct another cluster.
    const words = `main of "${basename(directory)}" runs on this host and does not answer: see whether its process is stopped, or name another cluster by --cluster`;
    throw new OdmoeError('TIMEOUT', words, { cause: thrown });
  }
}
