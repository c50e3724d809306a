import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import { authorityDigest, createAuthority } from '../../shared/transport/trust/certificate.js';
import { authorityDirectory, createAuthorityFiles } from './authority-files.js';
import { authorityWords } from './authority-words.js';
import { identityDirectory, joinedIds, readIdentity } from './identity-files.js';
import { firstRoster } from './roster-changes.js';
import { EMPTY_TOKEN_BOOK } from './token-book.js';

/** An authority that was just made. */
export interface CreatedCluster {
  /** The directory of its files. Whoever has it owns the cluster. */
  readonly directory: string;
  /** The authority in words. */
  readonly words: string;
}

/**
 * Makes the authority of a cluster, with an empty roster and no tokens.
 * @throws CONFIG_INVALID there is one already, or a daemon of this host has joined one that is not here; STORAGE_FULL, STORAGE_FAILED
 */
export async function createCluster(stateDirectory: string, cluster: string): Promise<CreatedCluster> {
  if (!(await fileExists(authorityDirectory(stateDirectory)))) await requireNoneJoined(stateDirectory, cluster);
  const authority = createAuthority(cluster);
  await createAuthorityFiles(stateDirectory, { authority, roster: firstRoster(cluster), tokens: EMPTY_TOKEN_BOOK });
  return {
    directory: authorityDirectory(stateDirectory),
    words: authorityWords(authorityDigest(authority.certificate)),
  };
}

/** A daemon of this host has joined an authority that is lost, or on another host. No machine of that one would know a new one. */
async function requireNoneJoined(stateDirectory: string, cluster: string): Promise<void> {
  const [id] = await joinedIds(stateDirectory);
  if (id !== undefined) throw authorityNotHere(stateDirectory, cluster, id);
}

/**
 * Throws CONFIG_INVALID where a main of this host, under whatever id, has a certificate and no authority: main would start in plaintext, and nobody
 * would see why. The main that starts has this id.
 */
export async function requireNotLost(stateDirectory: string, cluster: string, id: string): Promise<void> {
  for (const joined of await joinedIds(stateDirectory)) {
    if (joined === id || (await isMain(stateDirectory, joined)))
      throw authorityNotHere(stateDirectory, cluster, joined);
  }
}

/** False also for a worker or shadow, which may have joined a main elsewhere, and for one whose files are damaged. */
async function isMain(stateDirectory: string, id: string): Promise<boolean> {
  try {
    return (await readIdentity(stateDirectory, id))?.peer.role === 'main';
  } catch (thrown) {
    if (thrown instanceof OdmoeError) return false;
    throw thrown;
  }
}

function authorityNotHere(stateDirectory: string, cluster: string, id: string): OdmoeError {
  const what = `${id} of this host has joined "${cluster}", and the authority of that is not in ${authorityDirectory(stateDirectory)}`;
  const restore = 'if it was lost, restore it from a backup, by odmoe cluster restore FILE';
  const anew = `to begin anew, so that every machine has to join again, remove ${identityDirectory(stateDirectory, id)}`;
  return new OdmoeError('CONFIG_INVALID', `${what}: ${restore}; if it is on another host, main belongs there; ${anew}`);
}
