/** Files of keys and certificates, as PEM: OpenSSL's own commands read them. */
import { createPrivateKey, X509Certificate, type KeyObject } from 'node:crypto';
import { chmod, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { makeDirectories } from '../../shared/base/files/make-directories.js';
import { readBoundedFile, type FileErrors } from '../../shared/base/files/read-file.js';
import { replaceFile } from '../../shared/base/files/replace-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { standardError } from '../../shared/base/text/text-output.js';

/** Only the user of the daemon may read or write what belongs to trust. */
const PRIVATE_FILE = 0o600;
const PRIVATE_DIRECTORY = 0o700;
/** The rights of the group and of all others. */
const OTHERS = 0o077;

/** Longest key or certificate, in bytes. */
const PEM_LIMIT_BYTES = 8192;

/** Makes a directory that only this user may enter, and each missing one above it. @throws STORAGE_FULL, STORAGE_FAILED */
export async function makePrivateDirectory(path: string): Promise<void> {
  try {
    await makeDirectories(path, PRIVATE_DIRECTORY);
  } catch (thrown) {
    throw writeFailure(thrown, path, null);
  }
}

/** Replaces a file that only this user may read; it is on the disk then. @throws STORAGE_FULL, STORAGE_FAILED */
export async function writePrivateFile(path: string, contents: string | Uint8Array): Promise<void> {
  await replaceFile(path, contents, PRIVATE_FILE);
}

export async function writeKey(path: string, key: KeyObject): Promise<void> {
  await writePrivateFile(path, key.export({ type: 'pkcs8', format: 'pem' }));
}

/** `certificate`: DER. */
export async function writeCertificate(path: string, certificate: Buffer): Promise<void> {
  await writePrivateFile(path, new X509Certificate(certificate).toString());
}

/**
 * Every private key is read here. A key that other users may read, and a directory of keys that they may enter, become private first, with a line
 * on standard error. Throws the error of `errors.missing` or `errors.invalid`, and STORAGE_FAILED for a key that cannot be made private.
 */
export async function readKey(path: string, errors: FileErrors): Promise<KeyObject> {
  await keepPrivate(dirname(path), PRIVATE_DIRECTORY);
  await keepPrivate(path, PRIVATE_FILE);
  return await readPem(path, errors, 'private key', createPrivateKey);
}

/** Returns DER. Throws the error of `errors.missing` or `errors.invalid`. */
export async function readCertificate(path: string, errors: FileErrors): Promise<Buffer> {
  return await readPem(path, errors, 'certificate', (pem) => new X509Certificate(pem).raw);
}

async function keepPrivate(path: string, mode: number): Promise<void> {
  const before = await modeOf(path);
  if ((before & OTHERS) === 0) return;
  const shown = `${path}: other users of this machine had rights to this key (mode ${before.toString(8)})`;
  const failure = await chmod(path, mode).then(
    () => 'it kept its mode',
    (thrown: unknown) => systemErrorCode(thrown),
  );
  if (((await modeOf(path)) & OTHERS) !== 0) {
    const advice = `say chmod ${mode.toString(8)} as its owner, on a file system that keeps modes`;
    throw new OdmoeError('STORAGE_FAILED', `${shown}, and they cannot be taken from them (${failure}): ${advice}`);
  }
  const advice = 'if one of them may have read it, join again by --rejoin; for an authority, make a new one';
  standardError.write(`odmoe: ${shown}, and have none now (mode ${mode.toString(8)}); ${advice}\n`);
}

/** Its permissions; none for what is not there, because the read of it has the words. */
async function modeOf(path: string): Promise<number> {
  return stat(path).then(
    ({ mode }) => mode & 0o777,
    () => 0,
  );
}

async function readPem<Value>(
  path: string,
  errors: FileErrors,
  what: string,
  parse: (pem: Buffer) => Value,
): Promise<Value> {
  const pem = await readBoundedFile(path, PEM_LIMIT_BYTES, errors);
  try {
    return parse(pem);
  } catch (thrown) {
    throw new OdmoeError(errors.invalid, `${path}: not a ${what} in PEM; ${errors.remedy}`, { cause: thrown });
  }
}
