import { authorityDigest, createAuthority } from '../../shared/transport/trust/certificate.js';
import { authorityDirectory, createAuthorityFiles } from './authority-files.js';
import { authorityWords } from './authority-words.js';
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
 * @throws CONFIG_INVALID there is one already; STORAGE_FULL, STORAGE_FAILED
 */
export async function createCluster(stateDirectory: string, cluster: string): Promise<CreatedCluster> {
  const authority = createAuthority(cluster);
  await createAuthorityFiles(stateDirectory, { authority, roster: firstRoster(cluster), tokens: EMPTY_TOKEN_BOOK });
  return {
    directory: authorityDirectory(stateDirectory),
    words: authorityWords(authorityDigest(authority.certificate)),
  };
}
