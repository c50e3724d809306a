import type { KeyObject } from 'node:crypto';
import { createPublicKey } from 'node:crypto';
import { readdir, rename, rm, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { systemErrorCode } from '../../shared/base/errors/system-failure.js';
import { fileExists, readBoundedFile, type FileErrors } from '../../shared/base/files/read-file.js';
import { syncDirectory } from '../../shared/base/files/sync-directory.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { isIdentifier } from '../../shared/base/text/identifier.js';
import {
  clusterOfAuthority,
  createNodeKey,
  keyDigest,
  readPeerCertificate,
  type CertifiedPeer,
} from '../../shared/transport/trust/certificate.js';
import { isRefusal, type Refusal } from '../../shared/transport/trust/refusal.js';
import { ROSTER_LIMIT_BYTES } from '../../shared/wire/limits.js';
import { newerRoster, readRoster, type Roster } from './roster.js';
import {
  makePrivateDirectory,
  readCertificate,
  readKey,
  writeCertificate,
  writeKey,
  writePrivateFile,
} from './key-files.js';

/** The credentials that a node has got by joining. Its key never leaves its host. */
export interface NodeCredentials {
  /** The private key. */
  readonly key: KeyObject;
  /** DER. */
  readonly certificate: Buffer;
  /** The authority's certificate, DER. */
  readonly authority: Buffer;
  /** The names in the certificate. */
  readonly peer: CertifiedPeer;
  /** The newest roster that the node has seen. */
  readonly roster: Roster;
  /** The same, as the authority signed it. */
  readonly signedRoster: Buffer;
}

/** Main's reply to a node that joins or renews its key. */
export interface Certified {
  /** DER. */
  readonly certificate: Buffer;
  /** The authority's certificate, DER. */
  readonly authority: Buffer;
  /** The signed bytes of main's roster. */
  readonly roster: Uint8Array;
}

const NODES = 'nodes';
const KEY = 'node.key';
/** A key that main may have certified already, and whose certificate is not here yet. */
const NEXT_KEY = 'node.key.next';
const CERTIFICATE = 'node.crt';
const AUTHORITY = 'authority.crt';
const ROSTER = 'roster';

const ERRORS: FileErrors = {
  missing: 'STORAGE_FAILED',
  invalid: 'STORAGE_FAILED',
  remedy: 'join the cluster again, by --rejoin',
};

/** `stateDirectory`: that of the cluster, from the settings. */
export function identityDirectory(stateDirectory: string, id: string): string {
  assertInvariant(isIdentifier(id), `A node with the id ${JSON.stringify(id)} looks for its key.`);
  return join(stateDirectory, NODES, id);
}

/** True if the node has joined. The certificate is the last file that joining writes. */
export async function hasJoined(stateDirectory: string, id: string): Promise<boolean> {
  return fileExists(join(identityDirectory(stateDirectory, id), CERTIFICATE));
}

/** The ids under which nodes or operators of this host have joined the cluster. */
export async function joinedIds(stateDirectory: string): Promise<string[]> {
  const names = await readdir(join(stateDirectory, NODES)).catch((thrown: unknown) => {
    if (systemErrorCode(thrown) === 'ENOENT') return [];
    throw toOdmoeError(thrown);
  });
  const joined: string[] = [];
  for (const id of names.filter(isIdentifier)) if (await hasJoined(stateDirectory, id)) joined.push(id);
  return joined;
}

/**
 * The credentials that the node has got by joining; null: it has not joined.
 * @throws STORAGE_FAILED a file is missing or damaged, or does not belong to the others
 */
export async function readIdentity(stateDirectory: string, id: string): Promise<NodeCredentials | null> {
  const directory = identityDirectory(stateDirectory, id);
  if (!(await hasJoined(stateDirectory, id))) return null;
  const certificate = await readCertificate(join(directory, CERTIFICATE), ERRORS);
  const authority = await readAuthority(directory);
  const peer = required(readPeerCertificate(certificate, authority), join(directory, CERTIFICATE));
  if (peer.id !== id) throw unusable(join(directory, CERTIFICATE), `it is that of ${peer.id}`);
  const key = await keyOf(directory, peer);
  const kept = await readNodeRoster(directory, authority);
  if (kept === null) throw unusable(join(directory, ROSTER), 'no such file');
  return { key, certificate, authority, peer, ...kept };
}

/** The key of the certificate. A process that ended between the last two steps of storeIdentity left it under its first name. */
async function keyOf(directory: string, peer: CertifiedPeer): Promise<KeyObject> {
  for (const name of [KEY, NEXT_KEY]) {
    const path = join(directory, name);
    if (!(await fileExists(path))) continue;
    const key = await readKey(path, ERRORS);
    if (digestOf(key) !== peer.keyDigest) continue;
    if (name === NEXT_KEY) await takeNextKey(directory);
    return key;
  }
  throw unusable(join(directory, KEY), 'the key of the certificate is not there');
}

/**
 * The key that the node asks main to certify. It is on the disk before main hears of it, and stays the same until storeIdentity: a node that asks
 * again after a lost reply, or after a crash, asks for the same key.
 * @throws STORAGE_FULL, STORAGE_FAILED
 */
export async function keyToCertify(stateDirectory: string, id: string): Promise<KeyObject> {
  const directory = identityDirectory(stateDirectory, id);
  const path = join(directory, NEXT_KEY);
  if (await fileExists(path)) return await readKey(path, ERRORS);
  await makePrivateDirectory(directory);
  const key = createNodeKey();
  await writeKey(path, key);
  return key;
}

/**
 * Stores what main has sent for keyToCertify. From now on readIdentity gives it.
 * @throws TRUST_REFUSED the certificate is not for this node and its key, or the roster is old; STORAGE_FULL, STORAGE_FAILED
 */
export async function storeIdentity(stateDirectory: string, id: string, certified: Certified): Promise<void> {
  const directory = identityDirectory(stateDirectory, id);
  const { certificate, authority, roster } = certified;
  const key = await keyToCertify(stateDirectory, id);
  const peer = clusterOfAuthority(authority) === null ? NO_AUTHORITY : readPeerCertificate(certificate, authority);
  if (isRefusal(peer)) throw notOurs(peer.refusal);
  if (peer.id !== id || peer.keyDigest !== digestOf(key)) throw notOurs('it is for another node or another key');
  const signed = readRoster(roster, authority);
  if (isRefusal(signed)) throw notOurs(signed.refusal);
  if (!(await hasAuthority(directory, authority))) {
    // Files of another authority go first, so that a crash leaves nothing that does not fit together.
    for (const name of [CERTIFICATE, ROSTER]) await rm(join(directory, name), { force: true });
    await writeCertificate(join(directory, AUTHORITY), authority);
  }
  const newest = await storeRoster(stateDirectory, id, roster);
  if (isRefusal(newest)) throw notOurs(newest.refusal);
  await writeCertificate(join(directory, CERTIFICATE), certificate);
  await takeNextKey(directory);
}

const NO_AUTHORITY: Refusal = { refusal: 'the certificate of the authority is not one of odmoe' };

function notOurs(reason: string): OdmoeError {
  return new OdmoeError('TRUST_REFUSED', `what main sent is of no use here: ${reason}; join again, by --rejoin`);
}

async function hasAuthority(directory: string, authority: Buffer): Promise<boolean> {
  return (await fileExists(join(directory, AUTHORITY))) && (await readAuthority(directory)).equals(authority);
}

async function takeNextKey(directory: string): Promise<void> {
  try {
    await rename(join(directory, NEXT_KEY), join(directory, KEY));
    await syncDirectory(directory);
  } catch (thrown) {
    throw writeFailure(thrown, join(directory, KEY), null);
  }
}

/** Forgets all that the node has got by joining, its keys and its roster too, and the directories that are empty then. */
export async function forgetIdentity(stateDirectory: string, id: string): Promise<void> {
  const directory = identityDirectory(stateDirectory, id);
  try {
    await rm(directory, { recursive: true, force: true });
  } catch (thrown) {
    throw writeFailure(thrown, directory, null);
  }
  for (const above of [dirname(directory), stateDirectory]) {
    const isGone = await rmdir(above).then(
      () => true,
      () => false,
    );
    if (!isGone) return;
  }
}

/**
 * Stores a roster that a peer has sent, if it is newer than the one of the disk. Calls must not overlap. Returns the newest. Refused: it is not
 * signed by the node's authority, or older; nothing is stored then.
 * @throws STORAGE_FULL, STORAGE_FAILED
 */
export async function storeRoster(stateDirectory: string, id: string, bytes: Uint8Array): Promise<Roster | Refusal> {
  const directory = identityDirectory(stateDirectory, id);
  const authority = await readAuthority(directory);
  const offered = readRoster(bytes, authority);
  if (isRefusal(offered)) return offered;
  const have = await readNodeRoster(directory, authority);
  const newest = newerRoster(have?.roster ?? null, offered);
  if (newest === offered) await writePrivateFile(join(directory, ROSTER), bytes);
  return newest;
}

async function readNodeRoster(
  directory: string,
  authority: Buffer,
): Promise<Pick<NodeCredentials, 'roster' | 'signedRoster'> | null> {
  const path = join(directory, ROSTER);
  if (!(await fileExists(path))) return null;
  const signedRoster = await readBoundedFile(path, ROSTER_LIMIT_BYTES, ERRORS);
  return { roster: required(readRoster(signedRoster, authority), path), signedRoster };
}

/** DER of a certificate that is an authority's. */
async function readAuthority(directory: string): Promise<Buffer> {
  const path = join(directory, AUTHORITY);
  const certificate = await readCertificate(path, ERRORS);
  if (clusterOfAuthority(certificate) === null) throw unusable(path, NO_AUTHORITY.refusal);
  return certificate;
}

function digestOf(key: KeyObject): string {
  return keyDigest(createPublicKey(key));
}

function required<Value extends object>(result: Value | Refusal, path: string): Value {
  if (isRefusal(result)) throw unusable(path, result.refusal);
  return result;
}

function unusable(path: string, reason: string): OdmoeError {
  return new OdmoeError('STORAGE_FAILED', `${path}: ${reason}; ${ERRORS.remedy}`);
}
