import assert from 'node:assert/strict';
import { downloadExpert, type DownloadState } from '../../packs/fetching/download-expert.js';
import { PeerFailure } from '../../packs/fetching/peer-failure.js';
import type { ExpertExtent } from '../../packs/format/extents.js';
import { RUNTIME } from '../wall.js';

/** Two chunks of 10 bytes with 5 bytes between them. */
const EXTENT: ExpertExtent = {
  layer: 1,
  expert: 2,
  file: 'experts-00001.bin',
  offsetBytes: 100,
  endBytes: 125,
  storedBytes: 20,
  chunks: [
    { offsetBytes: 100, storedBytes: 10, crc32c: 10 },
    { offsetBytes: 115, storedBytes: 10, crc32c: 10 },
  ],
};
/** Counts bytes: enough to tell a whole chunk from a part. */
const countBytes = (bytes: Uint8Array, seed: number): number => seed + bytes.length;

describe('downloading an expert from a peer', () => {
  let written: [number, number][];
  let state: DownloadState;
  beforeEach(() => {
    written = [];
    state = { chunksDone: 0 };
  });

  /** The peer sends pack pieces of these lengths. */
  function download(pieces: readonly number[]): Promise<void> {
    return downloadExpert({
      extent: EXTENT,
      packDigest: 'd',
      slicesDigest: '',
      path: '/x',
      state,
      crc32c: countBytes,
      runtime: RUNTIME,
      source: {
        read: async function* () {
          for (const length of pieces) yield new Uint8Array(length);
        },
      },
      file: {
        write: async (_bytes: unknown, _offset: unknown, length: number, position: number) => {
          written.push([position, length]);
          return { bytesWritten: length };
        },
      } as never,
      turn: () => Promise.resolve(),
      onReceived: () => undefined,
      signal: new AbortController().signal,
    });
  }

  it('takes all of it, in pack pieces of any size', async () => {
    for (const pieces of [[25], [7, 7, 7, 4], new Array<number>(25).fill(1)]) {
      state = { chunksDone: 0 };
      await download(pieces);
      assert.equal(state.chunksDone, 2);
    }
  });

  it('fails when the peer ends early anywhere, and continues there at the next peer', async () => {
    for (let sent = 0; sent < 25; sent += 1) {
      state = { chunksDone: 0 };
      await assert.rejects(
        download(sent === 0 ? [] : [sent]),
        (error) =>
          error instanceof PeerFailure && error.code === 'PROTOCOL_VIOLATION' && /fewer bytes/.test(error.message),
      );
      assert.equal(state.chunksDone, sent < 10 ? 0 : 1, `after ${sent} bytes`);
    }
    written = [];
    await download([10]);
    assert.deepEqual(written, [[115, 10]]);
    assert.equal(state.chunksDone, 2);
  });

  it('fails when the peer sends too much, and writes none of the excess', async () => {
    await assert.rejects(download([25, 1]), /more bytes/);
    assert.deepEqual(
      written.filter(([position, length]) => position + length > EXTENT.endBytes),
      [],
    );
  });
});
