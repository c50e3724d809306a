import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** A model on the hub. */
export interface HubRepository {
  /** "Qwen/Qwen3-30B-A3B", or the name alone for the few models without an owner. */
  readonly id: string;
  /** Path of a GGUF file in it, of a split model that of any part; absent: the repository's checkpoint is meant. */
  readonly file?: string;
}

/** A revision of it: all its files as they were at one commit. */
export interface HubSnapshot extends HubRepository {
  /** 40 hexadecimal digits. */
  readonly commit: string;
}

const PART = '[A-Za-z0-9_](?:[\\w.-]*[A-Za-z0-9_])?';
const ID = new RegExp(`^${PART}(/${PART})?$`);
const COMMIT = /^[0-9a-f]{40}$/;
const ID_LIMIT = 96;
/** Digits of a commit in the name of a directory. */
const COMMIT_DIGITS = 12;
const FILE = /^[\w.-]+(\/[\w.-]+){0,7}$/;
/** A directory's name holds it, the repository and the commit, and has at most 255 bytes. */
const FILE_LIMIT = 120;

/**
 * The repository that a user names, and behind a colon a GGUF file in it. Pure.
 * @throws USAGE for what is no name
 */
export function parseRepository(text: string): HubRepository {
  const [, id = '', file = ''] = /^([^:]*):(.+)$/s.exec(text) ?? [];
  if (isRepositoryId(id) && isFilePath(file)) return { id, file };
  if (isRepositoryId(text)) return { id: text };
  throw new OdmoeError(
    'USAGE',
    `${JSON.stringify(text)}: is no name of a model on the hub; give OWNER/NAME, as Qwen/Qwen3-30B-A3B ` +
      '(for a directory on this machine: "odmoe pack DIRECTORY PACK", then "odmoe main --model PACK")',
  );
}

function isRepositoryId(text: string): boolean {
  return ID.test(text) && text.length <= ID_LIMIT && !text.includes('..') && !text.includes('--');
}

function isFilePath(text: string): boolean {
  return FILE.test(text) && text.length <= FILE_LIMIT && !text.split('/').some((part) => /^\.+$/.test(part));
}

/** The model as a user names it. Pure. */
export function repositoryName({ id, file }: HubRepository): string {
  return file === undefined ? id : `${id}:${file}`;
}

/** The path of a GGUF file without its ending and the number of its part, but with their count: the same for all parts of a model. Pure. */
export function ggufStem(path: string): string {
  return path.replace(/\.gguf$/i, '').replace(/-\d{5}(-of-\d{5})$/, '$1');
}

export function isCommit(text: string): boolean {
  return COMMIT.test(text);
}

/** Begin of the names of directories for packs of a repository; the hub forbids "--" in names, so no two have the same. */
function packNamePrefix({ id }: HubRepository): string {
  return `${id.replace('/', '--')}--`;
}

/** End of the name of a pack that was made from a GGUF file. */
function packNameEnding({ file }: HubRepository): string {
  return file === undefined ? '' : `--${ggufStem(file).replaceAll('/', '--')}`;
}

/** Name of the directory for the pack of a snapshot. */
export function packName(snapshot: HubSnapshot): string {
  return `${packNamePrefix(snapshot)}${snapshot.commit.slice(0, COMMIT_DIGITS)}${packNameEnding(snapshot)}`;
}

/** True for the name of a directory with a pack of the model, of whatever commit. Pure. */
export function isPackNameOf(name: string, repository: HubRepository): boolean {
  const prefix = packNamePrefix(repository);
  return name.startsWith(prefix) && name.slice(prefix.length + COMMIT_DIGITS) === packNameEnding(repository);
}
