/** What this machine has got by joining clusters. */
import { readdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { identityDirectory, type NodeCredentials, readIdentity } from '../../engine/trust/identity-files.js';
import { admit, withNewestKey } from '../../engine/trust/roster.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { stateDirectory } from '../../shared/base/files/state-directory.js';
import { isIdentifier } from '../../shared/base/text/identifier.js';
import { readPeerCertificate } from '../../shared/transport/trust/certificate.js';
import type { ClusterTrust } from '../../shared/transport/trust/cluster-trust.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';

/** Most daemons of this machine that are looked at in one cluster. */
const IDENTITIES_LIMIT = 16;

/** A daemon of this machine, and its part in a cluster with an authority. */
export type OwnIdentity =
  | { readonly kind: 'joined'; readonly id: string; readonly credentials: NodeCredentials }
  /** It has begun to join and has no certificate yet. */
  | { readonly kind: 'waiting'; readonly id: string }
  | { readonly kind: 'damaged'; readonly id: string; readonly reason: string };

export type IdentitiesOf = (cluster: string) => Promise<readonly OwnIdentity[]>;

/** Reads the identities of each cluster once. `directoryOf`: a cluster's state directory. */
export function identitiesOnce(directoryOf: (cluster: string) => string = stateDirectory): IdentitiesOf {
  const known = new Map<string, Promise<readonly OwnIdentity[]>>();
  return (cluster) => {
    const identities = known.get(cluster) ?? ownIdentities(directoryOf(cluster));
    known.set(cluster, identities);
    return identities;
  };
}

/** The identities in a cluster's state directory, by id. */
async function ownIdentities(directory: string): Promise<readonly OwnIdentity[]> {
  const parent = dirname(identityDirectory(directory, 'any'));
  let names: string[];
  try {
    names = await readdir(parent);
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === 'ENOENT') return [];
    return [{ kind: 'damaged', id: '', reason: toOdmoeError(thrown).message }];
  }
  const ids = names.filter(isIdentifier).sort().slice(0, IDENTITIES_LIMIT);
  return Promise.all(ids.map((id) => ownIdentity(directory, id)));
}

async function ownIdentity(directory: string, id: string): Promise<OwnIdentity> {
  try {
    const credentials = await readIdentity(directory, id);
    return credentials === null ? { kind: 'waiting', id } : { kind: 'joined', id, credentials };
  } catch (thrown) {
    return { kind: 'damaged', id, reason: toOdmoeError(thrown).message };
  }
}

/** True if the authority by which the daemon joined has certified the peer. */
export function isCertified(certificate: Buffer, { authority }: Pick<NodeCredentials, 'authority'>): boolean {
  return !isRefusal(readPeerCertificate(certificate, authority));
}

/** The trust with which a command asks as this daemon of its machine. */
export function trustOf(credentials: NodeCredentials): ClusterTrust {
  const { authority, peer, roster } = credentials;
  return {
    cluster: peer.cluster,
    authority,
    own: credentials,
    refusalOf: (other) => admit(other, roster, 'not-removed'),
    withNewestKey: (other) => withNewestKey(other, roster),
    watch: () => () => undefined,
  };
}
