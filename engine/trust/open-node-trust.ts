import { createPublicKey } from 'node:crypto';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { OwnCertificate } from '../../shared/transport/trust/cluster-trust.js';
import { keyDigest } from '../../shared/transport/trust/certificate.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';
import { type AuthorityState, readAuthorityFiles, writeAuthorityRoster } from './authority-files.js';
import {
  type Certified,
  forgetIdentity,
  keyToCertify,
  type NodeCredentials,
  readIdentity,
  storeIdentity,
  storeRoster,
} from './identity-files.js';
import { type KeyStore, NodeTrust } from './node-trust.js';
import { certifyPeer, withoutLostMains } from './roster-changes.js';
import { keysOf, presentEntry, signRoster } from './roster.js';

type Node = Pick<NodeSettings, 'role' | 'id' | 'cluster' | 'stateDirectory'>;

/** A daemon's part in the trust of its cluster, from the files of its state directory. */
export interface OpenTrust {
  readonly trust: NodeTrust;
  /** Only main has it. */
  readonly authority: AuthorityState | null;
  /** Resolves when every newer roster that has come is on the disk. */
  saved(): Promise<void>;
}

/**
 * Null: the cluster has no authority, or this daemon has not joined it. Main certifies itself the first time.
 * @throws STORAGE_FAILED a file is missing, damaged or does not belong to the others; CONFIG_INVALID the files are of another cluster or role
 */
export async function openNodeTrust(node: Node, nowMs: number, log: Logger): Promise<OpenTrust | null> {
  const { role, id, cluster, stateDirectory } = node;
  const files = role === 'main' ? await readAuthorityFiles(stateDirectory, cluster) : null;
  if (role === 'main' && files === null) return null;
  const stored = files === null ? await readIdentity(stateDirectory, id) : await readOwnOfMain(node, log);
  const authority = files === null ? null : await withNewestRoster(node, files, stored, log);
  const isCertified = authority === null || !needsCertificate(stored, authority);
  const certified = isCertified ? null : await certifyMain(node, authority, nowMs);
  const credentials = certified === null ? stored : await readIdentity(stateDirectory, id);
  if (credentials === null) return null;
  requireOwn(credentials, node);
  let saving: Promise<unknown> = Promise.resolve();
  const inOrder = <Result>(work: () => Promise<Result>): Promise<Result> => {
    const result = saving.then(work);
    saving = result.catch(() => undefined);
    return result;
  };
  const trust = new NodeTrust({
    cluster,
    authority: credentials.authority,
    own: credentials,
    admission: role === 'worker' ? 'not-removed' : 'listed',
    signedRoster: newestSigned(credentials, certified ?? authority),
    saveRoster: (signed) => void inOrder(() => keepRoster(node, signed, log)),
    keys: {
      next: () => keyToCertify(stateDirectory, id),
      store: (renewed) => inOrder(() => keepKey(stateDirectory, id, renewed)),
    },
  });
  const saved = async (): Promise<void> => {
    await saving;
  };
  return { trust, authority: certified ?? authority, saved };
}

/** Main has the authority, so it certifies itself anew where its own files are damaged. */
async function readOwnOfMain({ stateDirectory, id }: Node, log: Logger): Promise<NodeCredentials | null> {
  try {
    return await readIdentity(stateDirectory, id);
  } catch (thrown) {
    const error = toOdmoeError(thrown);
    if (error.code !== 'STORAGE_FAILED') throw error;
    log.warn('the certificate, the key or the roster of main itself is damaged: main makes itself new ones', { error });
    await forgetIdentity(stateDirectory, id);
    return null;
  }
}

/**
 * Main keeps each roster twice: in the authority's files and among its own, as every node does. Old files of the authority, put back by hand or by a
 * file system, would let removed nodes in again, so main goes on with the newer one. A restored backup counts far above both.
 */
async function withNewestRoster(
  { stateDirectory }: Node,
  state: AuthorityState,
  stored: NodeCredentials | null,
  log: Logger,
): Promise<AuthorityState> {
  if (stored?.authority.equals(state.authority.certificate) !== true) return state;
  const { roster } = stored;
  if (roster.count <= state.roster.count) return state;
  log.warn(
    'the roster among the files of the authority is an old one: main goes on with the newer one that it has seen',
    {
      count: state.roster.count,
      seen: roster.count,
    },
  );
  await writeAuthorityRoster(stateDirectory, roster, state.authority);
  return { ...state, roster };
}

/** True: main has no certificate of the authority, or the roster does not list its key: that of a backup may be older than the key. */
function needsCertificate(stored: NodeCredentials | null, { authority, roster }: AuthorityState): boolean {
  if (stored?.authority.equals(authority.certificate) !== true) return true;
  const { role, id, keyDigest: digest } = stored.peer;
  // The identity of another role is refused, and not replaced.
  if (role !== 'main') return false;
  const entry = presentEntry(roster, id);
  return entry === undefined || !keysOf(entry).includes(digest);
}

/** Lists main itself in the roster, in the place of keys that it has lost, and stores its certificate. The roster is on the disk before anybody can see the certificate. */
async function certifyMain(
  { id, stateDirectory }: Node,
  state: AuthorityState,
  nowMs: number,
): Promise<AuthorityState> {
  const { authority, roster } = state;
  const key = await keyToCertify(stateDirectory, id);
  const publicKey = createPublicKey(key);
  const before = withoutLostMains(roster, keyDigest(publicKey), nowMs);
  const entry = certifyPeer(authority, before, { role: 'main', id }, publicKey, nowMs);
  if (isRefusal(entry)) throw new OdmoeError('CONFIG_INVALID', `main has no certificate: ${entry.refusal}`);
  const signed = await writeAuthorityRoster(stateDirectory, entry.roster, authority);
  await storeIdentity(stateDirectory, id, {
    certificate: entry.certificate,
    authority: authority.certificate,
    roster: signed,
  });
  return { ...state, roster: entry.roster };
}

/** Main's own is that of its authority; other nodes have that of their last day. */
function newestSigned({ signedRoster }: NodeCredentials, state: AuthorityState | null): Uint8Array {
  return state === null ? signedRoster : signRoster(state.roster, state.authority);
}

function requireOwn({ peer }: NodeCredentials, { role, id, cluster }: Node): void {
  if (peer.cluster === cluster && peer.role === role) return;
  throw new OdmoeError(
    'CONFIG_INVALID',
    `${id} has joined "${peer.cluster}" as ${peer.role}, and is started as ${role} of "${cluster}": give it another --id, or join again by --rejoin`,
  );
}

/** The keys of an operator, who takes no rosters beside. `directory`: that of the operators of the cluster. */
export function operatorKeys(directory: string, id: string): KeyStore {
  return {
    next: () => keyToCertify(directory, id),
    store: (renewed) => keepKey(directory, id, renewed),
  };
}

async function keepKey(stateDirectory: string, id: string, renewed: Certified): Promise<OwnCertificate> {
  await storeIdentity(stateDirectory, id, renewed);
  return requirePresent(await readIdentity(stateDirectory, id), 'An identity that was stored can be read.');
}

async function keepRoster({ id, stateDirectory }: Node, signed: Uint8Array, log: Logger): Promise<void> {
  try {
    const kept = await storeRoster(stateDirectory, id, signed);
    if (isRefusal(kept)) log.error('a roster was not kept', { reason: kept.refusal });
  } catch (thrown) {
    log.error('a roster was not kept: after a restart this node goes on with an older one', {
      error: toOdmoeError(thrown),
    });
  }
}
