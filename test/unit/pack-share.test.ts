import assert from 'node:assert/strict';
import { setMaxListeners } from 'node:events';

import { readFileSync } from 'node:fs';

import { connect } from 'node:http2';

import { join } from 'node:path';

import { setTimeout as delay } from 'node:timers/promises';

import { fetchManifest } from '../../packs/fetching/fetch-manifest.js';

import { PackServer } from '../../packs/fetching/pack-server.js';
import { expertExtents } from '../../packs/format/extents.js';

import { HeldExperts } from '../../packs/format/held-experts.js';

import type { Pack } from '../../packs/format/open-pack.js';

import {
  PACK_PIECE_BYTES,
  PACK_PIECES_HELD_LIMIT,
  PACK_READERS_LIMIT,
  PACK_READERS_OF_PEER_LIMIT,
} from '../../shared/wire/limits.js';
import type { PackSource } from '../../shared/transport/node-clients.js';

import type { ReadPackRequest } from '../../shared/wire/messages.js';

import { FetchSetting, interruptedShare, testPack, type PackService } from './fetch-test-pack.js';

import { RUNTIME, openPackSource } from '../wall.js';
import { METHODS } from '../../shared/transport/methods.js';

const never = new AbortController().signal;
setMaxListeners(0, never);

describe('a pack that peers read from', function () {
  this.timeout(30_000);
  const setting = new FetchSetting();
  const sources: PackSource[] = [];
  let pack: Pack;

  before(async () => {
    pack = await testPack();
  });

  afterEach(() => {
    for (const source of sources.splice(0)) source.close();
  });

  async function open(service: PackService): Promise<PackSource> {
    const source = openPackSource(await setting.serve(service));
    sources.push(source);
    return source;
  }

  async function collect(pieces: AsyncIterable<Uint8Array>): Promise<Buffer> {
    const parts: Uint8Array[] = [];
    for await (const piece of pieces) parts.push(piece);
    return Buffer.concat(parts);
  }

  const request = (changes: Partial<ReadPackRequest> = {}): ReadPackRequest => ({
    packDigest: pack.packDigest,
    file: 'experts-00001.bin',
    offsetBytes: 0,
    lengthBytes: 1,
    ...changes,
  });

  it('gives every byte of every file, in pack pieces of a bounded size', async () => {
    const source = await open(new PackServer(pack, RUNTIME));
    for (const { name, size_bytes: lengthBytes } of pack.manifest.files) {
      const bytes = readFileSync(join(pack.directory, name));
      for await (const piece of source.read(request({ file: name, lengthBytes }), never)) {
        assert.ok(piece.length <= PACK_PIECE_BYTES);
      }
      assert.ok((await collect(source.read(request({ file: name, lengthBytes }), never))).equals(bytes), name);
      const part = await collect(source.read(request({ file: name, offsetBytes: 3, lengthBytes: 10 }), never));
      assert.ok(part.equals(bytes.subarray(3, 13)), name);
    }
  });

  it('gives the manifest that matches the digest, and no other', async () => {
    const source = await open(new PackServer(pack, RUNTIME));
    const manifest = await fetchManifest(source, pack.packDigest, never);
    assert.ok(manifest.equals(readFileSync(join(pack.directory, 'manifest.json'))));
    await assert.rejects(fetchManifest(source, 'f'.repeat(64), never), { code: 'NODE_REFUSED' });
    const share = new PackServer(pack, RUNTIME);
    const changed = await open({
      ...interruptedShare(share, () => undefined),
      manifest: async function* () {
        yield { bytes: Buffer.from('{}') };
      },
    });
    await assert.rejects(fetchManifest(changed, pack.packDigest, never), { code: 'PACK_CORRUPT' });
  });

  it('refuses names outside the manifest, and ranges beyond a file', async () => {
    const source = await open(new PackServer(pack, RUNTIME));
    const size = pack.manifest.files.find(({ name }) => name === 'experts-00001.bin')?.size_bytes ?? 0;
    const wrong: Partial<ReadPackRequest>[] = [
      { file: 'manifest.json' },
      { file: '../tiny/config.json' },
      { file: '/etc/passwd' },
      { file: '' },
      { file: 'experts-00099.bin' },
      { offsetBytes: size },
      { offsetBytes: size - 4, lengthBytes: 5 },
      { lengthBytes: 0 },
      { offsetBytes: Number.MAX_SAFE_INTEGER, lengthBytes: Number.MAX_SAFE_INTEGER },
    ];
    for (const changes of wrong) {
      await assert.rejects(collect(source.read(request(changes), never)), { code: 'PROTOCOL_VIOLATION' });
    }
    await assert.rejects(collect(source.read(request({ packDigest: 'x' }), never)), { code: 'NODE_REFUSED' });
  });

  it('lists and gives only the present experts of a pack that is being fetched', async () => {
    const { expertLayers: layers, experts } = pack.shape;
    const held = HeldExperts.none(layers, experts);
    held.add(1, 2);
    const source = await open(new PackServer(pack, RUNTIME, { held: () => held }));
    const description = await source.describe(5000);
    assert.deepEqual(
      [description.layers, description.experts, description.whole, description.packDigest],
      [layers, experts, false, pack.packDigest],
    );
    assert.deepEqual(Buffer.from(description.heldExperts), Buffer.from(held.toBits()));
    for (const { layer, expert, file, offsetBytes, endBytes } of expertExtents(pack.manifest)) {
      const read = collect(source.read(request({ file, offsetBytes, lengthBytes: endBytes - offsetBytes }), never));
      if (layer === 1 && expert === 2) await read;
      else await assert.rejects(read, { code: 'PACK_INCOMPLETE' }, `layer ${layer} expert ${expert}`);
    }
    const dense = request({ file: 'dense.safetensors', lengthBytes: 1 });
    await collect(source.read(dense, never));
  });

  it('serves a bounded number of readers of one host, and the next one when one has gone', async () => {
    let release: () => void = () => undefined;
    const released = new Promise<void>((resolve) => (release = resolve));
    const source = await open(interruptedShare(new PackServer(pack, RUNTIME), () => released));
    const read = (): Promise<Buffer> => collect(source.read(request(), never));
    const held = Array.from({ length: PACK_READERS_OF_PEER_LIMIT }, read);
    await delay(200);
    await assert.rejects(read(), { code: 'QUEUE_FULL', message: /12 of them of 127\.0\.0\.1/ });
    release();
    await Promise.all(held);
    await read();
  });

  it('leaves readers of other hosts their share, within a bound of all', async () => {
    const share = new PackServer(pack, RUNTIME);
    const held: AsyncGenerator[] = [];
    const begin = async (host: string): Promise<void> => {
      const reader = share.read(request({ lengthBytes: 100_000 }), never, { host, caller: null });
      await reader.next();
      held.push(reader);
    };
    for (let reader = 0; reader < PACK_READERS_OF_PEER_LIMIT; reader += 1) await begin('greedy');
    await assert.rejects(begin('greedy'), { code: 'QUEUE_FULL' });
    const others = PACK_READERS_LIMIT - PACK_READERS_OF_PEER_LIMIT;
    for (let reader = 0; reader < others; reader += 1) await begin(`modest-${reader}`);
    await assert.rejects(begin('one-more'), { code: 'QUEUE_FULL' });
    for (const reader of held) await reader.return(undefined);
    await begin('greedy');
    await held.at(-1)?.return(undefined);
  });

  it('counts readers by certificate where they have one, whatever their addresses', async () => {
    const share = new PackServer(pack, RUNTIME);
    const held: AsyncGenerator[] = [];
    const begin = async (id: string, host: string): Promise<void> => {
      const caller = { cluster: 'test', role: 'worker', id } as const;
      const reader = share.read(request({ lengthBytes: 100_000 }), never, { host, caller });
      await reader.next();
      held.push(reader);
    };
    for (let reader = 0; reader < PACK_READERS_OF_PEER_LIMIT; reader += 1) await begin('greedy', 'router');
    await assert.rejects(begin('greedy', 'another address'), {
      code: 'QUEUE_FULL',
      message: /12 of them of worker greedy/,
    });
    await begin('modest', 'router');
    for (const reader of held) await reader.return(undefined);
  });

  it('ends a read whose reader leaves', async () => {
    const share = new PackServer(pack, RUNTIME);
    const source = await open(share);
    for (let round = 0; round < 2 * PACK_READERS_LIMIT; round += 1) {
      for await (const piece of source.read(request({ lengthBytes: 100_000 }), never)) {
        assert.ok(piece.length > 0);
        break;
      }
    }
    const stopped = new AbortController();
    stopped.abort();
    await assert.rejects(collect(source.read(request(), stopped.signal)), { code: 'CANCELLED' });
  });

  it('holds a few pack pieces for a reader that takes none, and no more', async () => {
    let pieces = 0;
    const share = interruptedShare(new PackServer(pack, RUNTIME), () => void (pieces += 1));
    const endless: PackService = {
      ...share,
      read: async function* (asked, signal, peer) {
        while (!signal.aborted) yield* share.read(asked, signal, peer);
      },
    };
    const address = await setting.serve(endless);
    // The HTTP/2 window is closed from the start, so the server can send nothing.
    const session = connect(`http://${address}`, { settings: { initialWindowSize: 0 } });
    session.on('error', () => undefined);
    const headers = {
      ':method': 'POST',
      ':path': METHODS.pack.read.path,
      'content-type': 'application/grpc',
      te: 'trailers',
    };
    const call = session.request(headers);
    call.on('error', () => undefined);
    const message = METHODS.pack.read.request.encode(request({ lengthBytes: 100_000 }));
    const prefix = Buffer.alloc(5);
    prefix.writeUInt32BE(message.length, 1);
    call.end(Buffer.concat([prefix, message]));
    try {
      while (pieces < PACK_PIECES_HELD_LIMIT) await delay(5);
      await delay(300);
      assert.ok(pieces <= PACK_PIECES_HELD_LIMIT + 1, `${pieces} pack pieces were read for a reader that took none`);
    } finally {
      session.destroy();
    }
  });
});
