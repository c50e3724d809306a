import type { FileHandle } from 'node:fs/promises';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Extent, ExpertExtent } from '../format/extents.js';
import { fromPeer, PeerFailure } from './peer-failure.js';
import type { PackSource } from '../../shared/transport/node-clients.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';

export type Crc32c = (bytes: Uint8Array, seed: number) => number;

/** The peer's bytes differ from those that the manifest describes. */
export class DamagedBytesError extends PeerFailure {}

/** Progress of one expert; a later attempt, at another peer, continues from there. */
export interface DownloadState {
  /** Leading chunks that are written and had the right checksum. */
  chunksDone: number;
}

export interface DownloadOptions {
  extent: ExpertExtent;
  packDigest: string;
  /** Empty: the lossless parts are fetched. */
  slicesDigest: string;
  source: Pick<PackSource, 'read'>;
  file: Pick<FileHandle, 'write'>;
  path: string;
  state: DownloadState;
  crc32c: Crc32c;
  runtime: Runtime;
  /** Resolves when this download may take its next pack piece; other downloads may go first. */
  turn(): Promise<void>;
  onReceived(bytes: number): void;
  signal: AbortSignal;
}

/**
 * Fetches the missing chunks of an expert from one peer and writes each to its place, one pack piece after another. Bytes between chunks are not written.
 * Resolves when all chunks are written and had the right checksum; they are not synced.
 * @throws DamagedBytesError (PACK_CORRUPT), PeerFailure, STORAGE_FULL, STORAGE_FAILED, CANCELLED
 */
export async function downloadExpert(options: DownloadOptions): Promise<void> {
  const { extent, packDigest, slicesDigest, source, state, signal } = options;
  const first = extent.chunks[state.chunksDone];
  if (first === undefined) return;
  const writer = new ChunkWriter(options);
  let offsetBytes = first.offsetBytes;
  const lengthBytes = extent.endBytes - offsetBytes;
  const range = { packDigest, file: extent.file, offsetBytes, lengthBytes };
  const request = slicesDigest === '' ? range : { ...range, slicesDigest };
  const pieces = source.read(request, signal);
  for await (const piece of fromPeer(pieces)) {
    if (offsetBytes + piece.length > extent.endBytes) throw wrongLength(extent, 'more');
    options.onReceived(piece.length);
    await writer.take(piece, offsetBytes);
    offsetBytes += piece.length;
    await options.turn();
  }
  if (signal.aborted) throw new OdmoeError('CANCELLED', 'the fetch was stopped');
  if (offsetBytes !== extent.endBytes) throw wrongLength(extent, 'fewer');
}

/** Cuts pack pieces at the borders of chunks. */
class ChunkWriter {
  private crc = 0;

  constructor(private readonly options: DownloadOptions) {}

  async take(piece: Uint8Array, pieceOffset: number): Promise<void> {
    const { extent, state } = this.options;
    const pieceEnd = pieceOffset + piece.length;
    for (let chunk = extent.chunks[state.chunksDone]; chunk !== undefined; chunk = extent.chunks[state.chunksDone]) {
      const chunkEnd = chunk.offsetBytes + chunk.storedBytes;
      const from = Math.max(pieceOffset, chunk.offsetBytes);
      const to = Math.min(pieceEnd, chunkEnd);
      if (from >= to) return;
      const bytes = piece.subarray(from - pieceOffset, to - pieceOffset);
      this.crc = this.options.crc32c(bytes, this.crc);
      await this.write(bytes, from);
      if (to < chunkEnd) return;
      this.finish(chunk);
    }
  }

  private finish(chunk: Extent): void {
    const { extent, state } = this.options;
    if (this.crc !== chunk.crc32c) {
      throw new DamagedBytesError(
        'PACK_CORRUPT',
        `expert ${extent.expert} of layer ${extent.layer} came with wrong bytes at ${chunk.offsetBytes} of ${extent.file}`,
      );
    }
    this.crc = 0;
    state.chunksDone += 1;
  }

  private async write(bytes: Uint8Array, offsetBytes: number): Promise<void> {
    const { file, path, extent, runtime } = this.options;
    try {
      for (let done = 0; done < bytes.length;) {
        const written = done;
        const { bytesWritten } = await runtime.outside(() =>
          file.write(bytes, written, bytes.length - written, offsetBytes + written),
        );
        done += bytesWritten;
      }
    } catch (thrown) {
      throw writeFailure(thrown, path, extent.endBytes - offsetBytes);
    }
  }
}

function wrongLength({ layer, expert }: ExpertExtent, what: 'more' | 'fewer'): PeerFailure {
  return new PeerFailure(
    'PROTOCOL_VIOLATION',
    `expert ${expert} of layer ${layer} came with ${what} bytes than were asked for`,
  );
}
