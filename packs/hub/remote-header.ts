import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { SafetensorsFile } from '../checkpoint/safetensors-file.js';
import { checkHeaderLength, HEADER_LENGTH_BYTES, parseSafetensorsHeader } from '../checkpoint/safetensors-header.js';
import { DOWNLOADED_AT_MS } from './download-file.js';
import { type HubClient, PassingFailure } from './hub-client.js';
import type { HubFile } from './hub-files.js';
import type { HubSnapshot } from './hub-repository.js';

/**
 * Reads the header of a safetensors file on the hub: the first of its bytes, and no weights.
 * @param directory where the file will lie when it is downloaded
 * @throws MODEL_CORRUPT, and as HubClient.askJson
 */
export async function readRemoteHeader(
  hub: HubClient,
  snapshot: HubSnapshot,
  file: HubFile,
  directory: string,
): Promise<SafetensorsFile> {
  const request = { id: snapshot.id, revision: snapshot.commit, file: file.path };
  const header = await hub.withTries(request, () => readHeader(hub, snapshot, file));
  return {
    path: join(directory, file.path),
    sizeBytes: file.sizeBytes,
    modifiedMs: DOWNLOADED_AT_MS,
    headerDigest: createHash('sha256').update(header).digest('hex'),
    tensors: parseSafetensorsHeader(header, file.sizeBytes, `${snapshot.id}: ${file.path}`),
  };
}

/** The bytes behind the length field. The transfer is ended as soon as they are here. */
async function readHeader(hub: HubClient, snapshot: HubSnapshot, file: HubFile): Promise<Buffer> {
  const name = `${snapshot.id}: ${file.path}`;
  const body = await hub.openFile(snapshot, file, 0);
  let here = Buffer.alloc(0);
  const pieces: Uint8Array[] = [];
  let [hereBytes, wantedBytes] = [0, HEADER_LENGTH_BYTES];
  let headerBytes: number | null = null;
  try {
    for await (const chunk of body.chunks) {
      pieces.push(chunk);
      hereBytes += chunk.length;
      if (hereBytes < wantedBytes) continue;
      here = Buffer.concat(pieces);
      headerBytes ??= checkHeaderLength(here.readBigUInt64LE(0), file.sizeBytes, name);
      wantedBytes = HEADER_LENGTH_BYTES + headerBytes;
      if (hereBytes >= wantedBytes) return here.subarray(HEADER_LENGTH_BYTES, wantedBytes);
    }
  } finally {
    body.close();
  }
  if (file.sizeBytes < HEADER_LENGTH_BYTES) {
    throw new OdmoeError(
      'MODEL_CORRUPT',
      `${name}: ${file.sizeBytes} bytes, too short for a safetensors file; choose another repository`,
    );
  }
  throw new PassingFailure(`${name} ended early; run the same command again`);
}
