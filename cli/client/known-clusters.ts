/** The clusters with an authority that this user knows, and which mains may be asked in plaintext although he knows some. */
import { readdir } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { readAuthorityCertificate } from '../../engine/trust/authority-files.js';
import { joinedIds, readIdentity } from '../../engine/trust/identity-files.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { ANY_CLUSTER, operatorDirectory } from '../../shared/base/files/state-directory.js';
import { isClusterName } from '../../shared/base/text/identifier.js';
import { isLoopbackHost } from '../../shared/transport/credentials.js';
import { shortAuthorityDigest } from '../../shared/transport/trust/certificate.js';
import { hostOf } from '../../shared/wire/addresses.js';
import { authoritiesOfThisHost } from './operator-access.js';

/** A cluster of which this user is an operator, or whose authority lies on this host. */
export interface KnownCluster {
  name: string;
  /** The first digits of the authority's digest, as mDNS carries them; null: this user may not read its certificate. */
  authority: string | null;
}

/** Throws STORAGE_FAILED where the operator's files are damaged. */
export async function knownClusters(): Promise<KnownCluster[]> {
  const known: KnownCluster[] = [];
  for (const name of await operatedClusters()) {
    for (const id of await joinedIds(operatorDirectory(name))) {
      const credentials = await readIdentity(operatorDirectory(name), id);
      if (credentials !== null) known.push({ name, authority: shortAuthorityDigest(credentials.authority) });
    }
  }
  for (const directory of await authoritiesOfThisHost(null))
    known.push({ name: basename(directory), authority: await localDigest(directory) });
  return known;
}

/** The names of the clusters for which this user has a directory of an operator. */
async function operatedClusters(): Promise<string[]> {
  const names = await readdir(dirname(operatorDirectory(ANY_CLUSTER))).catch((thrown: unknown) => {
    if (systemErrorCode(thrown) === 'ENOENT') return [];
    throw toOdmoeError(thrown);
  });
  return names.filter(isClusterName);
}

async function localDigest(directory: string): Promise<string | null> {
  try {
    return shortAuthorityDigest(await readAuthorityCertificate(directory));
  } catch (thrown) {
    if (thrown instanceof OdmoeError) return null;
    throw thrown;
  }
}

/**
 * Throws TLS_MISMATCH where a main that shows no authority may be somebody else's, who wants to read what this user asks: it has the name of a
 * cluster that he knows, or it is on another machine while he knows clusters with an authority. Pure.
 */
export function requirePlaintextAllowed(
  { address, cluster }: { address: string; cluster: string },
  known: readonly KnownCluster[],
): void {
  const isOfName = known.some(({ name }) => name === cluster);
  if (known.length === 0 || (isLoopbackHost(hostOf(address)) && !isOfName)) return;
  const names = [...new Set(known.map(({ name }) => `"${name}"`))].join(', ');
  throw new OdmoeError(
    'TLS_MISMATCH',
    isOfName
      ? `a main of "${cluster}" answers at ${address} in plaintext, but "${cluster}" has an authority: somebody may pose as its main. See what runs there; if it is yours, say --insecure`
      : `main of "${cluster}" at ${address} has no authority, and the clusters that you know (${names}) have one: anybody may answer there. If it is the main that you mean, say --insecure`,
  );
}
