import { createHash } from 'node:crypto';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { MANIFEST_LIMIT_BYTES } from '../format/open-pack.js';
import { SLICES_FILE } from '../format/pack-layout.js';
import type { ReadManifestRequest } from '../../shared/wire/messages.js';
import type { PackSource } from '../../shared/transport/node-clients.js';

/**
 * Fetches the bytes of the manifest with this digest from a peer that holds the pack.
 * @throws PACK_CORRUPT if the peer sends another manifest, NODE_REFUSED if it holds another pack, and the errors of the source
 */
export function fetchManifest(source: ManifestSource, packDigest: string, signal: AbortSignal): Promise<Buffer> {
  return fetchDescription(source, { packDigest }, { name: 'manifest', digest: packDigest }, signal);
}

/** Fetches the bytes of the slices.json with this digest. @throws as fetchManifest; NODE_REFUSED also if the peer has other slices, or none */
export function fetchSlicesManifest(
  source: ManifestSource,
  request: { packDigest: string; slicesDigest: string },
  signal: AbortSignal,
): Promise<Buffer> {
  return fetchDescription(source, request, { name: SLICES_FILE, digest: request.slicesDigest }, signal);
}

type ManifestSource = Pick<PackSource, 'manifest'>;

async function fetchDescription(
  source: ManifestSource,
  request: ReadManifestRequest,
  { name, digest: expected }: { name: string; digest: string },
  signal: AbortSignal,
): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  let received = 0;
  for await (const piece of source.manifest(request, signal)) {
    received += piece.length;
    if (received > MANIFEST_LIMIT_BYTES) {
      throw new OdmoeError('PACK_CORRUPT', `the ${name} that came is larger than ${MANIFEST_LIMIT_BYTES} bytes`);
    }
    pieces.push(piece);
  }
  const manifest = Buffer.concat(pieces);
  const digest = createHash('sha256').update(manifest).digest('hex');
  if (digest === expected) return manifest;
  throw new OdmoeError(
    'PACK_CORRUPT',
    `the ${name} that came has the digest ${digest} instead of ${expected}: the pack has been changed since its node was started; ` +
      'start that node again',
  );
}
