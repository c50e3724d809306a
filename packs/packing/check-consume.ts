import { access, constants, lstat, realpath } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import { fileFailure, systemErrorCode } from '../../shared/base/errors/system-failure.js';
import type { SafetensorsFile } from '../checkpoint/safetensors-file.js';

/** Functions of the system. They are parameters so that a test can play another user or disk. */
export interface DeletionSystem {
  /** As access of node:fs, for writing. */
  accessForWriting(path: string): Promise<void>;
  /** Mode bits and owner of a path; a link's own. */
  ownership(path: string): Promise<{ mode: number; uid: number }>;
  /** Null: the system has no users. */
  userId: number | null;
}

const SYSTEM: DeletionSystem = {
  accessForWriting: async (path) => access(path, constants.W_OK),
  ownership: lstat,
  userId: process.geteuid?.() ?? null,
};

const ROOT_USER = 0;
/** In a directory with this mode bit a file may be deleted by its owner and the directory's owner only. */
const STICKY_BIT = 0o1000;
/** Directory of the files themselves in a download cache of Hugging Face; each revision has links to them. */
const CACHED_FILES_DIRECTORY = 'blobs';

/**
 * Checks that the weight files of a checkpoint can be deleted. Nothing is changed. Files that are gone already are left out.
 * @returns the files beside the checkpoint's own that --consume will delete or not free, in words; null: there are none
 * @throws STORAGE_FAILED if a file could not be deleted
 */
export async function checkConsume(files: readonly SafetensorsFile[], system = SYSTEM): Promise<string | null> {
  const targets: string[] = [];
  const shared: string[] = [];
  for (const { path } of files) {
    if (!(await fileExists(path))) continue;
    const target = await realpath(path);
    for (const deleted of new Set([path, target])) await requireDeletable(deleted, system);
    if ((await lstat(path)).isSymbolicLink()) targets.push(target);
    if ((await lstat(target)).nlink > 1) shared.push(basename(path));
  }
  const words = [...linkedWords(targets), ...hardLinkWords(shared)];
  return words.length === 0 ? null : `--consume: ${words.join('; ')}`;
}

function linkedWords(targets: readonly string[]): string[] {
  const [first] = targets;
  if (first === undefined) return [];
  const directories = [...new Set(targets.map((target) => dirname(target)))];
  const isCache = directories.some((directory) => basename(directory) === CACHED_FILES_DIRECTORY);
  return [
    `${targets.length} of the weight files are links, and what they lead to in ${directories.join(', ')} is deleted with them` +
      (isCache ? ', also for other revisions of the model in that cache' : ''),
  ];
}

function hardLinkWords(names: readonly string[]): string[] {
  if (names.length === 0) return [];
  return [`${names.join(', ')}: has another name on the disk (a hard link), so that deleting it frees no room`];
}

/** @throws STORAGE_FAILED if the path itself, which is no directory, cannot be deleted */
async function requireDeletable(path: string, system: DeletionSystem): Promise<void> {
  const directory = dirname(path);
  const refusal = (what: string, advice: string, cause?: unknown): OdmoeError =>
    new OdmoeError(
      'STORAGE_FAILED',
      `${path}: --consume could not delete it: ${what}; ${advice}, or pack without --consume`,
      { cause },
    );
  try {
    await system.accessForWriting(directory);
  } catch (thrown) {
    const failure = fileFailure(thrown);
    const [what, advice] = [failure?.what ?? 'it cannot be written', failure?.advice ?? 'check its permissions'];
    throw refusal(`of its directory, ${what}`, advice, thrown);
  }
  // An immutable file is refused with EPERM; one without permission to write, with EACCES, may be deleted.
  const code = await system.accessForWriting(path).then(() => '', systemErrorCode);
  if (code === 'EPERM') throw refusal('it is immutable', `run \`chattr -i ${path}\` as root`);
  const [ofDirectory, ofFile] = [await system.ownership(directory), await system.ownership(path)];
  const { userId } = system;
  if (userId === null || userId === ROOT_USER || (ofDirectory.mode & STICKY_BIT) === 0) return;
  if (ofFile.uid === userId || ofDirectory.uid === userId) return;
  throw refusal(
    `it belongs to another user (uid ${ofFile.uid}), and its directory has the sticky bit`,
    'pack as that user, or move the checkpoint to a directory of your own',
  );
}
