import { createHash } from 'node:crypto';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { MANIFEST_LIMIT_BYTES } from '../format/open-pack.js';
import type { PackSource } from '../../shared/transport/node-clients.js';

/**
 * Fetches the bytes of the manifest with this digest from a peer that holds the pack.
 * @throws PACK_CORRUPT if the peer sends another manifest, NODE_REFUSED if it holds another pack, and the errors of the source
 */
export async function fetchManifest(
  source: Pick<PackSource, 'manifest'>,
  packDigest: string,
  signal: AbortSignal,
): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  let received = 0;
  for await (const piece of source.manifest(packDigest, signal)) {
    received += piece.length;
    if (received > MANIFEST_LIMIT_BYTES) {
      throw new OdmoeError('PACK_CORRUPT', `the manifest that came is larger than ${MANIFEST_LIMIT_BYTES} bytes`);
    }
    pieces.push(piece);
  }
  const manifest = Buffer.concat(pieces);
  const digest = createHash('sha256').update(manifest).digest('hex');
  if (digest === packDigest) return manifest;
  throw new OdmoeError(
    'PACK_CORRUPT',
    `the manifest that came has the digest ${digest} instead of ${packDigest}: the pack has been changed since its node was started; ` +
      'start that node again',
  );
}
