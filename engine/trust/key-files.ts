/** Files of keys and certificates, as PEM: OpenSSL's own commands read them. */
import { createPrivateKey, X509Certificate, type KeyObject } from 'node:crypto';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { makeDirectories } from '../../shared/base/files/make-directories.js';
import { readBoundedFile, type FileErrors } from '../../shared/base/files/read-file.js';
import { replaceFile } from '../../shared/base/files/replace-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';

/** Only the user of the daemon may read or write what belongs to trust. */
const PRIVATE_FILE = 0o600;
const PRIVATE_DIRECTORY = 0o700;

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

/** Throws the error of `errors.missing` or `errors.invalid`. */
export async function readKey(path: string, errors: FileErrors): Promise<KeyObject> {
  return await readPem(path, errors, 'private key', createPrivateKey);
}

/** Returns DER. Throws the error of `errors.missing` or `errors.invalid`. */
export async function readCertificate(path: string, errors: FileErrors): Promise<Buffer> {
  return await readPem(path, errors, 'certificate', (pem) => new X509Certificate(pem).raw);
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
