import { dirname } from 'node:path';
import { makeDirectories } from '../../shared/base/files/make-directories.js';
import { fileExists, readJsonFile, type FileErrors } from '../../shared/base/files/read-file.js';
import { parseActivationCounts, type ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import { replaceFile } from '../../shared/base/files/replace-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';

/** Larger than the counts of any model; a larger file is not a record of counts. */
const LARGEST_FILE_BYTES = 64 * 1024 * 1024;

const FILE_ERRORS: FileErrors = { missing: 'STORAGE_FAILED', invalid: 'STORAGE_FAILED', remedy: 'remove the file' };

export interface StoredCounts {
  counts: ActivationCounts | null;
  /** The reason why an existing file was not used. */
  problem: string | null;
}

/**
 * Reads the counts of a model from a file. A file that is missing, incomplete, unreadable or of another model is not an error: counts start
 * again.
 * @param model pack digest and experts of one layer that the counts must belong to
 */
export async function readActivationCounts(
  path: string,
  model: { packDigest: string; experts: number },
): Promise<StoredCounts> {
  const none = (problem: string | null): StoredCounts => ({ counts: null, problem });
  if (!(await fileExists(path))) return none(null);
  let value: unknown;
  try {
    value = await readJsonFile(path, LARGEST_FILE_BYTES, FILE_ERRORS);
  } catch (thrown) {
    return none(thrown instanceof Error ? thrown.message : String(thrown));
  }
  const counts = parseActivationCounts(value);
  if (counts === null) return none(`${path}: not a record of activation counts, or a damaged one`);
  if (counts.packDigest !== model.packDigest || counts.experts !== model.experts)
    return none(`${path}: holds the counts of another model`);
  return { counts, problem: null };
}

/**
 * Replaces the file in one step, and makes its directory if necessary.
 * @throws STORAGE_FULL, STORAGE_FAILED
 */
export async function writeActivationCounts(path: string, counts: ActivationCounts): Promise<void> {
  try {
    await makeDirectories(dirname(path));
  } catch (thrown) {
    throw writeFailure(thrown, path, null);
  }
  await replaceFile(path, `${JSON.stringify(counts.toJson())}\n`);
}
