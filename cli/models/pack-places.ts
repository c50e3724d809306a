import { readdir, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { dataDirectory } from '../../engine/environment/node-environment.js';
import { MANIFEST_FILE } from '../../packs/format/pack-layout.js';
import { ARRIVING_SUFFIX } from '../../packs/hub/remote-model.js';
import { type HubRepository, isPackNameOf } from '../../packs/hub/hub-repository.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';

/** The directory with this user's packs: those that were pulled, and those that workers and shadows have fetched. */
export function packsDirectory(flag: string | undefined): string {
  return flag === undefined ? join(dataDirectory(process.env), 'packs') : resolve(flag);
}

/** Names of the directories in it; none if it does not exist. @throws STORAGE_FAILED */
export async function packDirectories(packs: string): Promise<string[]> {
  try {
    const entries = await readdir(packs, { withFileTypes: true });
    return entries.flatMap((entry) => (entry.isDirectory() ? [entry.name] : [])).sort();
  } catch (thrown) {
    if (systemErrorCode(thrown) === 'ENOENT') return [];
    throw writeFailure(thrown, packs, null);
  }
}

/** True if the pack in the directory is finished: its manifest is written last. */
export function isWholePack(directory: string): Promise<boolean> {
  return fileExists(join(directory, MANIFEST_FILE));
}

/** Directories of whole packs of a repository, the one that was made last first. */
export async function packsOf(packs: string, repository: HubRepository): Promise<string[]> {
  const found: { directory: string; madeMs: number }[] = [];
  for (const name of await packDirectories(packs)) {
    if (!isPackNameOf(name, repository) || name.endsWith(ARRIVING_SUFFIX)) continue;
    const directory = join(packs, name);
    if (await isWholePack(directory)) found.push({ directory, madeMs: (await stat(directory)).mtimeMs });
  }
  return found.sort((a, b) => b.madeMs - a.madeMs).map(({ directory }) => directory);
}

/** The path, or the nearest directory above it that exists. */
export async function existingDirectory(path: string): Promise<string> {
  return (await fileExists(path)) || dirname(path) === path ? path : existingDirectory(dirname(path));
}
