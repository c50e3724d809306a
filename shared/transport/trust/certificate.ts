import { createHash, createPublicKey, generateKeyPairSync, sign, X509Certificate, type KeyObject } from 'node:crypto';
import { assertInvariant } from '../../base/errors/assert-invariant.js';
import { isIdentifier } from '../../base/text/identifier.js';
import {
  bitString,
  boolean,
  explicitTag,
  generalizedTime,
  implicitTag,
  objectIdentifier,
  octetString,
  sequence,
  setOf,
  unsignedInteger,
  utcTime,
  utf8String,
} from './der.js';
import { type CertifiedCaller, isPeerRole, type PeerRole } from './peer-role.js';
import type { Refusal } from './refusal.js';

/** The peer that a certificate names, with its key. */
export interface CertifiedPeer extends CertifiedCaller {
  /** SHA-256 of the public key (SPKI, DER), 64 digits of base 16. */
  readonly keyDigest: string;
  /** Count of the newest roster when the certificate was made; the next roster lists the key. Absent: no roster came before it. */
  readonly issuedAt?: number;
}

/** The cluster's authority: whoever has its key decides who is in the cluster. */
export interface Authority {
  readonly cluster: string;
  /** The private key. */
  readonly key: KeyObject;
  /** DER. */
  readonly certificate: Buffer;
}

/** A name that every node's certificate has. A client that dials it takes any node of the cluster. */
export const ANY_NODE_NAME = 'node.odmoe.internal';

/** Longest certificate that is read, in bytes. Ours have about 700. */
const CERTIFICATE_LIMIT_BYTES = 4096;
/** Length of a P-256 public key as SPKI with an uncompressed point. */
const KEY_BYTES = 91;
/** The uncompressed point at the end of such a key. */
const POINT_BYTES = 65;
const COUNT_BYTES = 6;
export const SHORT_DIGEST_DIGITS = 16;
const SERIAL_DIGEST_BYTES = 10;

/** Ids that are DNS labels stand as they are. DNS does not tell capitals from small letters, so ids with capitals are no labels. */
const DNS_LABEL = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/;
/** Names of other ids. An id that looks like such a name gets one itself, so no two ids share a name. */
const ENCODED_LABEL = /^id-[0-9a-f]{40}$/;

const ECDSA_WITH_SHA256 = sequence(objectIdentifier('1.2.840.10045.4.3.2'));
/** A certificate's dates never end it: the roster says who is in the cluster, and many small machines have no clock. */
const VALIDITY = sequence(utcTime('700101000000Z'), generalizedTime('99991231235959Z'));

/** The DNS name of the node with this id. A client that dials it takes that node alone. */
export function nodeName(id: string): string {
  const isLabel = DNS_LABEL.test(id) && !ENCODED_LABEL.test(id);
  const label = isLabel ? id : `id-${createHash('sha256').update(id).digest('hex').slice(0, 40)}`;
  return `${label}.${ANY_NODE_NAME}`;
}

/** The DNS name of a role. A client that dials it takes any peer that may serve that role. */
export function roleName(role: PeerRole): string {
  return `${role}.odmoe.internal`;
}

/** SHA-256 of an authority's certificate, 64 digits of base 16. */
export function authorityDigest(certificateDer: Buffer): string {
  return createHash('sha256').update(certificateDer).digest('hex');
}

/** The first 16 digits of authorityDigest: people compare them, and mDNS carries them. */
export function shortAuthorityDigest(certificateDer: Buffer): string {
  return authorityDigest(certificateDer).slice(0, SHORT_DIGEST_DIGITS);
}

/** SHA-256 of a public key (SPKI, DER), 64 digits of base 16. */
export function keyDigest(publicKey: KeyObject): string {
  return createHash('sha256').update(spkiOf(publicKey)).digest('hex');
}

/** A new private key of a node or an operator, on P-256. */
export function createNodeKey(): KeyObject {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
}

/** The public key (SPKI, DER) that a peer sends to be certified. Refused: anything but a key on P-256 in the one form of ours. */
export function readPublicKey(spki: Buffer): KeyObject | Refusal {
  try {
    const key = createPublicKey({ key: spki, type: 'spki', format: 'der' });
    if (isOnP256(key) && spkiOf(key).equals(spki)) return key;
  } catch {
    // OpenSSL's words on bytes that are no key help nobody.
  }
  return { refusal: 'the key is not one on the curve P-256 (SPKI, DER, uncompressed): use odmoe of the same version' };
}

/** Makes a new authority. */
export function createAuthority(cluster: string): Authority {
  assertInvariant(
    isIdentifier(cluster),
    `An authority is made for a cluster with the name ${JSON.stringify(cluster)}.`,
  );
  const key = createNodeKey();
  const publicKey = createPublicKey(key);
  const extensions = [
    extension('2.5.29.19', true, sequence(boolean(true), unsignedInteger(Buffer.from([0])))),
    // keyCertSign is bit 5.
    extension('2.5.29.15', true, bitString(Buffer.from([0x04]), 2)),
    extension('2.5.29.14', false, octetString(keyIdentifier(publicKey))),
    extension('2.5.29.17', false, sequence(uriName(clusterUri(cluster)))),
  ];
  const issuer = authorityName(cluster);
  return { cluster, key, certificate: signedCertificate(key, { issuer, subject: issuer, publicKey, extensions }, 0) };
}

/** An authority from its stored key and certificate (DER). Refused: they do not belong together, or it is no authority's certificate. */
export function openAuthority(key: KeyObject, certificate: Buffer): Authority | Refusal {
  const cluster = clusterOfAuthority(certificate);
  if (cluster === null) return { refusal: 'the certificate is not that of an authority of odmoe' };
  if (!new X509Certificate(certificate).checkPrivateKey(key)) {
    return { refusal: 'the key does not belong to the certificate of the authority' };
  }
  return { cluster, key, certificate };
}

/** The cluster whose authority has this certificate (DER); null: it is no authority's certificate. */
export function clusterOfAuthority(certificateDer: Buffer): string | null {
  const certificate = parsed(certificateDer);
  if (certificate === null || !certificate.ca || !isOnP256(certificate.publicKey)) return null;
  const [, encoded] = /^URI:odmoe:\/\/([^/, ]+)$/.exec(certificate.subjectAltName ?? '') ?? [];
  const cluster = encoded === undefined ? null : decoded(encoded);
  return cluster !== null && isIdentifier(cluster) ? cluster : null;
}

/**
 * Certifies that the public key is the peer's. Returns DER. Main's way to here is certifyPeer, which lists the key, too.
 * @param rosterCount count of the newest roster; the next one must list the key. 0: there is no roster.
 */
export function issueCertificate(
  authority: Authority,
  peer: { role: PeerRole; id: string },
  publicKey: KeyObject,
  rosterCount = 0,
): Buffer {
  const { cluster, key } = authority;
  const { role, id } = peer;
  assertInvariant(isIdentifier(id), `A certificate is made for the id ${JSON.stringify(id)}.`);
  assertInvariant(isOnP256(publicKey), 'A certificate is made for a key that is not on P-256.');
  // 1.3.6.1.5.5.7.3: 1 is serverAuth, 2 clientAuth. Operators serve nothing.
  const purposes = [...(role === 'operator' ? [] : ['1']), '2'].map((use) =>
    objectIdentifier(`1.3.6.1.5.5.7.3.${use}`),
  );
  const extensions = [
    extension('2.5.29.19', true, sequence()),
    // digitalSignature is bit 0.
    extension('2.5.29.15', true, bitString(Buffer.from([0x80]), 7)),
    extension('2.5.29.37', false, sequence(...purposes)),
    extension('2.5.29.14', false, octetString(keyIdentifier(publicKey))),
    extension('2.5.29.35', false, sequence(implicitTag(0, keyIdentifier(createPublicKey(key))))),
    extension('2.5.29.17', false, sequence(...dnsNamesOf(peer).map(dnsName), uriName(peerUri(cluster, role, id)))),
  ];
  const subject = distinguishedName([
    ['2.5.4.10', cluster],
    ['2.5.4.11', role],
    ['2.5.4.3', id],
  ]);
  return signedCertificate(key, { issuer: authorityName(cluster), subject, publicKey, extensions }, rosterCount);
}

/** The peer that a certificate (DER) names, whoever signed it; null: it has not the names of a peer. */
export function claimedPeer(certificateDer: Buffer): CertifiedCaller | null {
  const certificate = parsed(certificateDer);
  return certificate === null ? null : peerOfNames(certificate.subjectAltName ?? '');
}

/** The peer that a certificate (DER) of the authority (DER) names. Refused: another authority's, or one that this file does not write. */
export function readPeerCertificate(certificateDer: Buffer, authorityDer: Buffer): CertifiedPeer | Refusal {
  const certificate = parsed(certificateDer);
  if (certificate === null) return { refusal: 'the certificate cannot be read' };
  const cluster = clusterOfAuthority(authorityDer);
  assertInvariant(cluster !== null, 'A peer is checked against a certificate that is no authority of odmoe.');
  const authority = new X509Certificate(authorityDer);
  if (!certificate.checkIssued(authority) || !certificate.verify(authority.publicKey)) {
    const digest = shortAuthorityDigest(authorityDer);
    return {
      refusal: `the certificate is not of the authority of "${cluster}" (${digest}): join this cluster again, by --rejoin`,
    };
  }
  if (certificate.ca || !isOnP256(certificate.publicKey)) {
    return { refusal: 'the certificate is not that of a node or an operator with a key on P-256' };
  }
  const named = peerOfNames(certificate.subjectAltName ?? '');
  if (named?.cluster !== cluster) return { refusal: 'the names in the certificate do not belong together' };
  const issuedAt = countOf(certificate.serialNumber);
  const peer = { ...named, keyDigest: keyDigest(certificate.publicKey) };
  return issuedAt === 0 ? peer : { ...peer, issuedAt };
}

/** Reads the names as OpenSSL writes them. Null unless they are exactly the names that issueCertificate gives to such a peer. */
function peerOfNames(names: string): CertifiedCaller | null {
  const [, ...encoded] = /URI:odmoe:\/\/([^/, ]+)\/([^/, ]+)\/([^/, ]+)$/.exec(names) ?? [];
  const [cluster, role, id] = encoded.map(decoded);
  if (cluster === undefined || role === undefined || id === undefined) return null;
  if (cluster === null || role === null || id === null) return null;
  if (!isIdentifier(cluster) || !isPeerRole(role) || !isIdentifier(id)) return null;
  const expected = [...dnsNamesOf({ role, id }).map((name) => `DNS:${name}`), `URI:${peerUri(cluster, role, id)}`];
  return names === expected.join(', ') ? { cluster, role, id } : null;
}

/** The DNS names of a peer. Main's own worker is served at main's address, so main may be dialled as a worker. Operators are not dialled. */
function dnsNamesOf({ role, id }: { role: PeerRole; id: string }): string[] {
  if (role === 'operator') return [roleName(role)];
  const roles: readonly PeerRole[] = role === 'main' ? ['main', 'worker'] : [role];
  return [nodeName(id), ANY_NODE_NAME, ...roles.map(roleName)];
}

function clusterUri(cluster: string): string {
  return `odmoe://${encodeURIComponent(cluster)}`;
}

function peerUri(cluster: string, role: PeerRole, id: string): string {
  return `${clusterUri(cluster)}/${role}/${encodeURIComponent(id)}`;
}

/** Null: no text of UTF-8. */
function decoded(component: string): string | null {
  try {
    return decodeURIComponent(component);
  } catch {
    return null;
  }
}

/** Null: not one certificate in DER and nothing behind it. OpenSSL would read PEM, too. */
function parsed(certificateDer: Buffer): X509Certificate | null {
  if (certificateDer.length > CERTIFICATE_LIMIT_BYTES) return null;
  try {
    const certificate = new X509Certificate(certificateDer);
    return certificate.raw.equals(certificateDer) ? certificate : null;
  } catch {
    return null;
  }
}

function isOnP256(key: KeyObject): boolean {
  return key.asymmetricKeyType === 'ec' && key.asymmetricKeyDetails?.namedCurve === 'prime256v1' && hasPlainPoint(key);
}

/** A key may also be written with a compressed point. Its digest would be another one, so only one form is taken. */
function hasPlainPoint(key: KeyObject): boolean {
  return spkiOf(key).length === KEY_BYTES;
}

/** `key`: a public key. */
export function spkiOf(key: KeyObject): Buffer {
  return key.export({ type: 'spki', format: 'der' });
}

interface CertificateContents {
  readonly issuer: Buffer;
  readonly subject: Buffer;
  readonly publicKey: KeyObject;
  readonly extensions: readonly Buffer[];
}

function signedCertificate(key: KeyObject, contents: CertificateContents, rosterCount: number): Buffer {
  const { issuer, subject, publicKey, extensions } = contents;
  const rest = [
    ECDSA_WITH_SHA256,
    issuer,
    VALIDITY,
    subject,
    spkiOf(publicKey),
    explicitTag(3, sequence(...extensions)),
  ];
  const version3 = explicitTag(0, unsignedInteger(Buffer.from([2])));
  const signedPart = sequence(version3, serialNumber(rosterCount, rest), ...rest);
  return sequence(signedPart, ECDSA_WITH_SHA256, bitString(sign('sha256', signedPart, key)));
}

/**
 * The count of the newest roster, then a digest of all else in the certificate: 128 bits, and no two certificates share one. By the count a node
 * with an older roster tells a key that is new to it from one that has been replaced.
 */
function serialNumber(rosterCount: number, rest: readonly Buffer[]): Buffer {
  const count = Buffer.alloc(COUNT_BYTES);
  count.writeUIntBE(rosterCount, 0, COUNT_BYTES);
  const digest = createHash('sha256').update(Buffer.concat(rest)).digest();
  return unsignedInteger(Buffer.concat([count, digest.subarray(0, SERIAL_DIGEST_BYTES)]));
}

/** `serialNumber`: digits of base 16. */
function countOf(serialNumber: string): number {
  return Number(BigInt(`0x${serialNumber}`) >> BigInt(8 * SERIAL_DIGEST_BYTES));
}

function authorityName(cluster: string): Buffer {
  return distinguishedName([
    ['2.5.4.10', cluster],
    ['2.5.4.3', 'odmoe authority'],
  ]);
}

function distinguishedName(attributes: readonly (readonly [identifier: string, value: string])[]): Buffer {
  return sequence(
    ...attributes.map(([identifier, value]) => setOf(sequence(objectIdentifier(identifier), utf8String(value)))),
  );
}

function extension(identifier: string, isCritical: boolean, value: Buffer): Buffer {
  // DER leaves a default out, and FALSE is one.
  const critical = isCritical ? [boolean(true)] : [];
  return sequence(objectIdentifier(identifier), ...critical, octetString(value));
}

/** The first 160 bits of the SHA-256 of the point (RFC 7093, method 1). */
function keyIdentifier(publicKey: KeyObject): Buffer {
  const point = spkiOf(publicKey).subarray(-POINT_BYTES);
  return createHash('sha256').update(point).digest().subarray(0, 20);
}

function dnsName(name: string): Buffer {
  return implicitTag(2, Buffer.from(name));
}

function uriName(uri: string): Buffer {
  return implicitTag(6, Buffer.from(uri));
}
