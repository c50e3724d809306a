/** The clusters of which this user has files on this host: as main, as a node that has joined, or as an operator. */
import { readdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import { ANY_CLUSTER, operatorDirectory } from '../../shared/base/files/state-directory.js';
import { isClusterName } from '../../shared/base/text/identifier.js';
import { authorityDigest } from '../../shared/transport/trust/certificate.js';
import { authorityDirectory, readAuthorityCertificate } from '../trust/authority-files.js';
import { hasJoined, joinedIds, readIdentity } from '../trust/identity-files.js';

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

/**
 * Digests of the authorities that this user's files hold: of clusters that he made, of those that his daemons have joined, and of those of which he
 * is an operator. Files that cannot be read say nothing. `stateDirectory`: that of any cluster.
 */
export async function knownAuthorities(
  stateDirectory: string,
  operators: string = operatorDirectory(ANY_CLUSTER),
): Promise<ReadonlySet<string>> {
  const known = new Set<string>();
  const states = await clusterDirectories(stateDirectory, null);
  for (const directory of states) {
    if (!(await fileExists(authorityDirectory(directory)))) continue;
    const certificate = await unlessUnreadable(() => readAuthorityCertificate(directory));
    if (certificate !== null) known.add(authorityDigest(certificate));
  }
  for (const directory of [...states, ...(await clusterDirectories(operators, null))]) {
    for (const id of (await unlessUnreadable(() => joinedIds(directory))) ?? []) {
      const credentials = await unlessUnreadable(() => readIdentity(directory, id));
      if (credentials !== null) known.add(authorityDigest(credentials.authority));
    }
  }
  return known;
}

async function unlessUnreadable<Result>(read: () => Promise<Result>): Promise<Result | null> {
  try {
    return await read();
  } catch (thrown) {
    if (thrown instanceof OdmoeError) return null;
    throw thrown;
  }
}
