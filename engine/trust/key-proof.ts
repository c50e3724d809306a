/** Shows that a joining peer holds its key, and that it speaks on this very connection: nobody can pass the proof on. */
import { createPublicKey, sign, verify, type KeyObject } from 'node:crypto';
import type { TLSSocket } from 'node:tls';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { spkiOf } from '../../shared/transport/trust/certificate.js';

/** Length of what a TLS connection exports for proofs and codes, in bytes. */
export const EXPORTER_BYTES = 32;
/** The label by which a TLS connection exports it (RFC 5705), without a context. */
export const EXPORTER_LABEL = 'EXPORTER-odmoe-join-1';

/** The bytes that both ends of a TLS connection export, and nobody else knows: EXPORTER_BYTES of them. */
export function exportedBytes(socket: TLSSocket): Buffer {
  // In TLS 1.3 an empty context is the same as none.
  return socket.exportKeyingMaterial(EXPORTER_BYTES, EXPORTER_LABEL, Buffer.alloc(0));
}

const PURPOSE = 'odmoe join 1';
const RENEWAL_PURPOSE = 'odmoe renew 1';

/**
 * @param key the peer's private key
 * @param exporter what the TLS connection exports
 */
export function proveKey(key: KeyObject, exporter: Buffer, id: string): Buffer {
  return sign('sha256', provenText(spkiOf(createPublicKey(key)), exporter, id), key);
}

/** True: whoever sent the proof holds the private key of `publicKey`, and joins as `id` on the connection of `exporter`. */
export function isKeyProof(proof: Buffer, publicKey: KeyObject, exporter: Buffer, id: string): boolean {
  return verify('sha256', provenText(spkiOf(publicKey), exporter, id), publicKey, proof);
}

/**
 * Shows that a node holds the key by which it renews its own. The connection shows its present key, and gRPC exports nothing of it.
 * @param key the next private key of the node
 */
export function proveNextKey(key: KeyObject, id: string): Buffer {
  return sign('sha256', renewalText(spkiOf(createPublicKey(key)), id), key);
}

/** True: whoever made the proof holds the private key of `publicKey`, as the next one of the node `id`. */
export function isNextKeyProof(proof: Uint8Array, publicKey: KeyObject, id: string): boolean {
  return verify('sha256', renewalText(spkiOf(publicKey), id), publicKey, proof);
}

function renewalText(spki: Buffer, id: string): Buffer {
  return Buffer.concat([Buffer.from(RENEWAL_PURPOSE), spki, Buffer.from(id)]);
}

/** Every part before the id has a fixed length, so the bytes are read in one way only. */
function provenText(spki: Buffer, exporter: Buffer, id: string): Buffer {
  assertInvariant(exporter.length === EXPORTER_BYTES, `A connection exported ${exporter.length} bytes for a proof.`);
  return Buffer.concat([Buffer.from(PURPOSE), exporter, spki, Buffer.from(id)]);
}
