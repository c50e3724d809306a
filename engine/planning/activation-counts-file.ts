import { dirname } from 'node:path';
import { makeDirectories } from '../../shared/base/files/make-directories.js';
import { fileExists, readJsonFile, type FileErrors } from '../../shared/base/files/read-file.js';
import { parseActivationCounts, type ActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import { replaceFile } from '../../shared/base/files/replace-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';

/** Larger than the counts of any model; a larger file is no record of counts. */
const LARGEST_FILE_BYTES = 64 * 1024 * 1024;

const FILE_ERRORS: FileErrors = { missing: 'STORAGE_FAILED', invalid: 'STORAGE_FAILED', remedy: 'remove the file' };

export interface StoredCounts {
  counts: ActivationCounts | null;
  /** Why a file that is there was not used. */
  problem: string | null;
}

/**
 * The counts of a model in a file. A file that is missing, torn, of another model or not readable is no failure: counts begin anew.
 * @param model pack digest and experts of a layer that the counts must be of
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
 * Replaces the file in one step, and makes its directory where there is none.
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
