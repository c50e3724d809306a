import { readFile, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { INDEX_FILE, SINGLE_FILE } from '../checkpoint/weight-files.js';
import { type HubRepository, isCommit } from './hub-repository.js';
import { indexedNames } from './weight-index.js';

/** A checkpoint that another program has downloaded. */
export interface CachedSnapshot {
  readonly directory: string;
  readonly commit: string;
}

/**
 * Looks for a whole checkpoint in the cache of the hub's own library (`models--OWNER--NAME`, with `refs` and `snapshots`). A snapshot counts if
 * config.json and every weight file that its index names are there: one that is being downloaded, or of which only a part was asked for, does
 * not. Null: there is none.
 */
export async function findCachedSnapshot(
  cacheDirectory: string,
  { id }: HubRepository,
  revision: string,
): Promise<CachedSnapshot | null> {
  const commit = await commitKnownHere(cacheDirectory, { id }, revision);
  if (commit === null) return null;
  const directory = join(repositoryDirectory(cacheDirectory, id), 'snapshots', commit);
  return (await isWhole(directory)) ? { directory, commit } : null;
}

/** The commit that a revision names: itself, or by the cache that of a branch or tag when something was downloaded; null: unknown. */
export async function commitKnownHere(
  cacheDirectory: string,
  { id }: HubRepository,
  revision: string,
): Promise<string | null> {
  return isCommit(revision) ? revision : referenced(repositoryDirectory(cacheDirectory, id), revision);
}

function repositoryDirectory(cacheDirectory: string, id: string): string {
  return join(cacheDirectory, `models--${id.replaceAll('/', '--')}`);
}

async function referenced(repository: string, revision: string): Promise<string | null> {
  if (revision.split('/').includes('..')) return null;
  const text = await readFile(join(repository, 'refs', revision), 'utf8').catch(() => '');
  return isCommit(text.trim()) ? text.trim() : null;
}

async function isWhole(directory: string): Promise<boolean> {
  if (!(await isFile(join(directory, 'config.json')))) return false;
  const index = await readFile(join(directory, INDEX_FILE)).catch(() => null);
  if (index === null) return isFile(join(directory, SINGLE_FILE));
  const names = indexedNames(index);
  for (const name of names ?? []) if (name !== basename(name) || !(await isFile(join(directory, name)))) return false;
  return names !== null && names.size > 0;
}

/** Files of the cache are links; one whose target is not there, or not yet, is no file. */
async function isFile(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isFile() && found.size > 0,
    () => false,
  );
}
