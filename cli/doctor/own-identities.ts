/** The identities that this machine, and this user as an operator, have got by joining clusters. */
import { readdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { identityDirectory, type NodeCredentials, readIdentity } from '../../engine/trust/identity-files.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { operatorDirectory, stateDirectory } from '../../shared/base/files/state-directory.js';
import { isIdentifier } from '../../shared/base/text/identifier.js';
import { readPeerCertificate } from '../../shared/transport/trust/certificate.js';
import { isRefusal } from '../../shared/transport/trust/refusal.js';

/** Most of them that are looked at in one directory of a cluster. */
const IDENTITIES_LIMIT = 16;

/** A daemon of this machine or an operator, and the part in a cluster with an authority. */
export type OwnIdentity =
  | { readonly kind: 'joined'; readonly id: string; readonly credentials: NodeCredentials }
  /** It has begun to join and has no certificate yet. An operator's is beside the user's configuration. */
  | { readonly kind: 'waiting'; readonly id: string; readonly isOperator: boolean }
  | { readonly kind: 'damaged'; readonly id: string; readonly reason: string };

export type IdentitiesOf = (cluster: string) => Promise<readonly OwnIdentity[]>;

/** Reads the identities of each cluster once. `directoriesOf`: where those of daemons and operators lie. */
export function identitiesOnce(
  directoriesOf: (cluster: string) => IdentityDirectories = directoriesOfUser,
): IdentitiesOf {
  const known = new Map<string, Promise<readonly OwnIdentity[]>>();
  return (cluster) => {
    const identities = known.get(cluster) ?? identitiesIn(directoriesOf(cluster));
    known.set(cluster, identities);
    return identities;
  };
}

/** The directories of a cluster in which daemons and operators of this machine have their keys. */
export interface IdentityDirectories {
  readonly daemons: string;
  readonly operators: string;
}

function directoriesOfUser(cluster: string): IdentityDirectories {
  return { daemons: stateDirectory(cluster), operators: operatorDirectory(cluster) };
}

async function identitiesIn({ daemons, operators }: IdentityDirectories): Promise<readonly OwnIdentity[]> {
  return [...(await ownIdentities(daemons, false)), ...(await ownIdentities(operators, true))];
}

/** The identities in a cluster's directory, by id. */
async function ownIdentities(directory: string, isOperator: boolean): Promise<readonly OwnIdentity[]> {
  const parent = dirname(identityDirectory(directory, 'any'));
  let names: string[];
  try {
    names = await readdir(parent);
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === 'ENOENT') return [];
    return [{ kind: 'damaged', id: '', reason: toOdmoeError(thrown).message }];
  }
  const ids = names.filter(isIdentifier).sort().slice(0, IDENTITIES_LIMIT);
  return Promise.all(ids.map((id) => ownIdentity(directory, id, isOperator)));
}

async function ownIdentity(directory: string, id: string, isOperator: boolean): Promise<OwnIdentity> {
  try {
    const credentials = await readIdentity(directory, id);
    return credentials === null ? { kind: 'waiting', id, isOperator } : { kind: 'joined', id, credentials };
  } catch (thrown) {
    return { kind: 'damaged', id, reason: toOdmoeError(thrown).message };
  }
}

/** True if the authority by which the daemon joined has certified the peer. */
export function isCertified(certificate: Buffer, { authority }: Pick<NodeCredentials, 'authority'>): boolean {
  return !isRefusal(readPeerCertificate(certificate, authority));
}
