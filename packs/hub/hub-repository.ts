import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** A model on the hub. */
export interface HubRepository {
  /** "Qwen/Qwen3-30B-A3B", or the name alone for the few models without an owner. */
  readonly id: string;
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

/**
 * The repository that a user names. Pure.
 * @throws USAGE for what is no name; MODEL_UNSUPPORTED for a quantized file of a repository (REPO:Q4_K_M)
 */
export function parseRepository(text: string): HubRepository {
  const [, id = '', file] = /^([^:]*):([\w.-]+)$/.exec(text) ?? [];
  if (isRepositoryId(id) && file !== undefined) {
    throw new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${text}: names a GGUF file, which is a form that odmoe does not read; give a repository with safetensors, without ":${file}"`,
    );
  }
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

export function isCommit(text: string): boolean {
  return COMMIT.test(text);
}

/** Begin of the names of directories for packs of a repository; the hub forbids "--" in names, so no two have the same. */
export function packNamePrefix({ id }: HubRepository): string {
  return `${id.replace('/', '--')}--`;
}

/** Name of the directory for the pack of a snapshot. */
export function packName(snapshot: HubSnapshot): string {
  return `${packNamePrefix(snapshot)}${snapshot.commit.slice(0, COMMIT_DIGITS)}`;
}
