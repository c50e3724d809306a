import assert from 'node:assert/strict';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

import { join } from 'node:path';

import { setTimeout as delay } from 'node:timers/promises';

import { AWAIT_LIMIT_MS, ExpertFetcher, type ExpertFetcherOptions } from '../../../packs/fetching/expert-fetcher.js';
import { PackPeers } from '../../../packs/fetching/pack-peers.js';

import { PackServer } from '../../../packs/fetching/pack-server.js';

import { PartialPack } from '../../../packs/fetching/partial-pack.js';

import { crc32c } from '../../../native/index.js';

import { OdmoeError } from '../../../shared/base/errors/odmoe-error.js';

import { HeldExperts } from '../../../packs/format/held-experts.js';

import type { Pack } from '../../../packs/format/open-pack.js';

import type { ExpertId } from '../../../shared/model/expert-id.js';

import type { PeerContext } from '../../../shared/transport/peer-context.js';
import type { ReadPackRequest } from '../../../shared/wire/messages.js';

import { waitUntil } from '../../integration/harness/wait-until.js';

import { FetchSetting, interruptedShare, SILENT, testPack } from '../../unit/fetch-test-pack.js';

import { RUNTIME, openPackSource, runtimeAt } from '../../wall.js';

const never = (): AbortSignal => new AbortController().signal;

describe('the fetching of experts', function () {
  this.timeout(60_000);
  const setting = new FetchSetting();
  let pack: Pack;
  let everything: ExpertId[];
  let clockOffsetMs: number;
  let partial: PartialPack;
  let warnings: string[];
  let infos: string[];

  before(async () => {
    pack = await testPack();
    everything = pack.manifest.experts.map(({ layer, expert }) => ({ layer, expert }));
  });

  beforeEach(() => {
    clockOffsetMs = 0;
    warnings = [];
    infos = [];
  });

  /** A fetcher into the setting's directory that asks these; the first is main. */
  async function create(
    addresses: string[],
    changes: Partial<ExpertFetcherOptions> = {},
    idleLimitMs?: number,
  ): Promise<ExpertFetcher> {
    const manifest = readFileSync(join(pack.directory, 'manifest.json'));
    partial =
      (await PartialPack.resume(setting.directory, RUNTIME).catch(() => null)) ??
      (await PartialPack.begin(setting.directory, manifest, RUNTIME));
    const runtime = runtimeAt(() => RUNTIME.nowMs() + clockOffsetMs);
    const { expertLayers: layers, experts } = pack.shape;
    const log = {
      ...SILENT,
      info: (event: string) => void infos.push(event),
      warn: (event: string) => void warnings.push(event),
      error: (event: string) => void warnings.push(event),
    };
    const peers = new PackPeers({
      packDigest: pack.packDigest,
      layers,
      experts,
      runtime,
      log,
      connect: (address) => openPackSource(address, idleLimitMs),
      onDescribed: () => fetcher.peersChanged(),
    });
    const fetcher: ExpertFetcher = new ExpertFetcher({
      store: partial,
      peers,
      crc32c,
      runtime,
      log,
      onFetched: () => undefined,
      ...changes,
    });
    setting.users.push(fetcher);
    peers.setAddresses(addresses.slice(0, 1), addresses.slice(1));
    return fetcher;
  }

  function assertFetched(places: readonly ExpertId[]): void {
    for (const { layer, expert } of places) {
      const { file, chunks } = partial.extent(layer, expert);
      const [theirs, ours] = [pack.directory, setting.directory].map((directory) =>
        readFileSync(join(directory, file)),
      );
      for (const { offsetBytes, storedBytes } of chunks) {
        const [from, to] = [offsetBytes, offsetBytes + storedBytes];
        assert.ok(ours?.subarray(from, to).equals(theirs?.subarray(from, to) ?? Buffer.alloc(0)), `${layer} ${expert}`);
      }
    }
  }

  const ready = (fetcher: ExpertFetcher): Promise<void> => waitUntil('all is fetched', () => fetcher.progress.ready);

  it('brings the needed experts and no others, and reports progress', async () => {
    const fetcher = await create([await setting.serve(new PackServer(pack, RUNTIME))]);
    const needed = everything.filter(({ layer }) => layer === 1);
    const bytes = needed.reduce((sum, { layer, expert }) => sum + partial.extent(layer, expert).storedBytes, 0);
    assert.deepEqual([fetcher.progress.ready, fetcher.progress.neededBytes], [true, 0]);
    fetcher.need(needed);
    assert.deepEqual([fetcher.progress.ready, fetcher.progress.neededBytes], [false, bytes]);
    await ready(fetcher);
    assert.equal(fetcher.progress.heldBytes, bytes);
    assert.ok(fetcher.progress.receivedBytes >= bytes);
    assertFetched(needed);
    for (const { layer, expert } of everything) assert.equal(partial.held.has(layer, expert), layer === 1);
  });

  it('uses all peers that have experts, and asks each only for those it has', async () => {
    const pieces = [0, 0, 0];
    const halves = [HeldExperts.none(4, 8), HeldExperts.none(4, 8)];
    for (const { layer, expert } of everything) halves[layer % 2]?.add(layer, expert);
    const counted = halves.map((held, index) =>
      setting.serve(
        interruptedShare(
          new PackServer(pack, RUNTIME, { held: () => held }),
          () => void (pieces[index] = (pieces[index] ?? 0) + 1),
        ),
      ),
    );
    const main = setting.serve(
      interruptedShare(new PackServer(pack, RUNTIME), () => void (pieces[2] = (pieces[2] ?? 0) + 1)),
    );
    const fetcher = await create(await Promise.all([main, ...counted]));
    await delay(200);
    fetcher.need(everything.filter(({ layer }) => layer < 2));
    await ready(fetcher);
    assert.ok((pieces[0] ?? 0) > 0 && (pieces[1] ?? 0) > 0, `pieces by peer: ${pieces.join(', ')}`);
    assertFetched(everything.filter(({ layer }) => layer < 2));
    assert.deepEqual(warnings, []);
  });

  it('never keeps wrong bytes, and fetches those experts from another peer', async () => {
    const manifest = readFileSync(join(pack.directory, 'manifest.json'));
    const scratch = await PartialPack.begin(join(setting.parent, 'scratch'), manifest, RUNTIME);
    const corrupt = await setting.damagedShare(({ layer }) => layer === 2, scratch.extents);
    await scratch.close();
    let fromGood = 0;
    const good = setting.serve(interruptedShare(new PackServer(pack, RUNTIME), () => void (fromGood += 1)));
    // Main is asked last among equals, so that the other one is tried first.
    const fetcher = await create([await good, await setting.serve(corrupt)]);
    await delay(200);
    fetcher.need(everything);
    await ready(fetcher);
    assertFetched(everything);
    assert.ok(fromGood > 0);
    assert.ok(warnings.includes('a peer sent a damaged expert'));
  });

  it('reports experts that are damaged everywhere, and brings the rest', async () => {
    const manifest = readFileSync(join(pack.directory, 'manifest.json'));
    const scratch = await PartialPack.begin(join(setting.parent, 'scratch'), manifest, RUNTIME);
    const corrupt = await setting.damagedShare(({ layer, expert }) => layer === 2 && expert === 3, scratch.extents);
    await scratch.close();
    const fetcher = await create([await setting.serve(corrupt)]);
    fetcher.need(everything);
    const rest = everything.filter(({ layer, expert }) => layer !== 2 || expert !== 3);
    await waitUntil('all others are here', () => rest.every(({ layer, expert }) => partial.held.has(layer, expert)));
    await delay(50);
    assert.ok(!partial.held.has(2, 3));
    const waiting = fetcher.awaitExpert(2, 3, never());
    clockOffsetMs = AWAIT_LIMIT_MS + 1;
    await assert.rejects(waiting ?? Promise.resolve(), { code: 'PACK_INCOMPLETE', message: /wrong bytes/ });
    assert.match(fetcher.progress.problem, /wrong bytes/);
  });

  it('continues at another peer, at the current chunk, when one is lost', async () => {
    let pieces = 0;
    const share = new PackServer(pack, RUNTIME);
    const dying = interruptedShare(share, () => {
      pieces += 1;
      if (pieces > 5) throw new OdmoeError('STORAGE_FAILED', 'this peer is dying');
    });
    const fetcher = await create([await setting.serve(share), await setting.serve(dying)]);
    await delay(200);
    fetcher.need(everything);
    await ready(fetcher);
    assert.ok(pieces > 5, 'the dying peer was not asked');
    assertFetched(everything);
  });

  it('asks another peer when one accepts a read and sends nothing', async () => {
    let reads = 0;
    const stuck = interruptedShare(new PackServer(pack, RUNTIME), () => {
      reads += 1;
      return delay(60_000, undefined, { ref: false });
    });
    const good = new PackServer(pack, RUNTIME);
    const fetcher = await create([await setting.serve(good), await setting.serve(stuck)], {}, 300);
    await delay(200);
    fetcher.need(everything);
    await ready(fetcher);
    assert.ok(reads > 0, 'the silent peer was not asked');
    assertFetched(everything);
  });

  it('reports a silent peer while the read is still open', async () => {
    let reads = 0;
    const stuck = interruptedShare(new PackServer(pack, RUNTIME), () => {
      reads += 1;
      return delay(60_000, undefined, { ref: false });
    });
    const fetcher = await create([await setting.serve(stuck)]);
    fetcher.need(everything);
    await waitUntil('the peer is asked', () => reads > 0);
    assert.equal(fetcher.progress.problem, '');
    clockOffsetMs = 5000;
    assert.match(fetcher.progress.problem, /sends nothing/);
  });

  it('does not ask peers that hold another pack', async () => {
    let asked = false;
    const share = new PackServer(pack, RUNTIME);
    const other = interruptedShare(share, () => void (asked = true));
    const otherPack = { ...other, describe: () => ({ ...share.describe(), packDigest: 'f'.repeat(64) }) };
    const fetcher = await create([await setting.serve(share), await setting.serve(otherPack)]);
    fetcher.need(everything);
    await ready(fetcher);
    assert.equal(asked, false);
  });

  it('yields to the expert that a load waits for', async () => {
    const order: string[] = [];
    const share = new PackServer(pack, RUNTIME);
    const slow = {
      ...interruptedShare(share, () => delay(20)),
    };
    const fetcher = await create([await setting.serve(slow)], {
      onFetched: () => void order.push('fetched'),
    });
    fetcher.need(everything);
    await waitUntil('something has come', () => order.length > 0);
    await fetcher.awaitExpert(3, 7, never());
    assert.ok(partial.held.has(3, 7));
    assert.ok(order.length < everything.length / 2, `${order.length} experts came before the one that was waited for`);
    assert.equal(fetcher.awaitExpert(3, 7, never()), null);
    await ready(fetcher);
    assertFetched(everything);
  });

  it('goes on with the others when the expert that a load waits for comes damaged', async () => {
    const manifest = readFileSync(join(pack.directory, 'manifest.json'));
    const scratch = await PartialPack.begin(join(setting.parent, 'scratch'), manifest, RUNTIME);
    const { file, offsetBytes } = scratch.extent(2, 3);
    const corrupt = await setting.damagedShare(({ layer, expert }) => layer === 2 && expert === 3, scratch.extents);
    await scratch.close();
    // The other expert comes after the damaged one is asked for, and the damaged one after the other has yielded to it.
    const asked: boolean[] = [];
    let hasYielded = false;
    const share = {
      ...interruptedShare(corrupt, () => undefined),
      read: async function* (request: ReadPackRequest, signal: AbortSignal, peer: PeerContext) {
        const isWaitedFor = request.file === file && request.offsetBytes === offsetBytes;
        asked.push(isWaitedFor);
        await waitUntil('its turn has come', () => (isWaitedFor ? hasYielded : asked.includes(true)));
        yield* corrupt.read(request, signal, peer);
      },
    };
    const fetcher = await create([await setting.serve(share)]);
    fetcher.need([{ layer: 0, expert: 0 }]);
    await waitUntil('the other expert is asked for', () => asked.length > 0);
    const load = new AbortController();
    const waiting = fetcher.awaitExpert(2, 3, load.signal) ?? assert.fail('it is here');
    await waitUntil('the other expert comes', () => fetcher.progress.receivedBytes > 0);
    await delay(50);
    assert.ok(!partial.held.has(0, 0), 'it does not yield');
    hasYielded = true;
    await waitUntil('the other expert is here', () => partial.held.has(0, 0), AWAIT_LIMIT_MS / 4);
    load.abort();
    await assert.rejects(waiting, { code: 'CANCELLED' });
  });

  it('brings an expert that was not listed as needed, and stops the wait when the load is cancelled', async () => {
    const share = new PackServer(pack, RUNTIME);
    const fetcher = await create([await setting.serve(interruptedShare(share, () => delay(50)))]);
    await fetcher.awaitExpert(2, 5, never());
    assertFetched([{ layer: 2, expert: 5 }]);
    const cancelled = new AbortController();
    const waiting = fetcher.awaitExpert(0, 0, cancelled.signal);
    cancelled.abort();
    await assert.rejects(waiting ?? Promise.resolve(), { code: 'CANCELLED' });
  });

  it('brings damaged experts again, and makes the pack whole again later', async () => {
    const fetcher = await create([await setting.serve(new PackServer(pack, RUNTIME))]);
    const isWhole = (): boolean => readdirSync(setting.directory).includes('fetched.jsonl');
    fetcher.need(everything);
    await waitUntil('the pack is whole', isWhole);
    const { file } = partial.extent(2, 5);
    const path = join(setting.directory, file);
    writeFileSync(path, readFileSync(path).fill(0x5a), { flag: 'r+' });
    for (const { layer, expert } of everything.filter(({ layer }) => layer === 2)) await fetcher.forget(layer, expert);
    assert.ok(!isWhole() && !fetcher.progress.ready);
    await fetcher.awaitExpert(2, 5, never());
    await ready(fetcher);
    assertFetched(everything);
    clockOffsetMs = 60_000;
    await waitUntil('the pack is whole again', isWhole);
  });

  it('fails a load when no peer has the expert, not for ever, and serves it when one joins', async () => {
    const fetcher = await create([]);
    const waiting = fetcher.awaitExpert(0, 0, never());
    clockOffsetMs = AWAIT_LIMIT_MS + 1;
    await assert.rejects(waiting ?? Promise.resolve(), { code: 'PACK_INCOMPLETE', message: /no daemon is known/ });
    assert.match(fetcher.progress.problem, /no daemon is known/);
  });

  it('stops at a full disk, reports it, and continues when there is room', async () => {
    let isFull = true;
    let refusals = 0;
    const requireRoom = async (): Promise<void> => {
      refusals += 1;
      if (isFull) throw new OdmoeError('STORAGE_FULL', `the disk is full (expert ${refusals})`);
    };
    const fetcher = await create([await setting.serve(new PackServer(pack, RUNTIME))], { requireRoom });
    const waiting = fetcher.awaitExpert(0, 0, never());
    fetcher.need(everything);
    await assert.rejects(waiting ?? Promise.resolve(), { code: 'STORAGE_FULL' });
    assert.equal(fetcher.progress.problem, 'the disk is full (expert 1)');
    clockOffsetMs = 6000;
    await delay(1200);
    assert.ok(refusals > 2 && fetcher.progress.problem === 'the disk is full (expert 1)');
    assert.equal(warnings.filter((event) => event === 'experts cannot be kept').length, 1);
    isFull = false;
    clockOffsetMs = 60_000;
    await ready(fetcher);
    assert.equal(fetcher.progress.problem, '');
    assertFetched(everything);
  });

  it('fetches an expert again that the disk may have lost', async () => {
    const fetcher = await create([await setting.serve(new PackServer(pack, RUNTIME))]);
    const openFile = partial.openExpertFile.bind(partial);
    let losses = 0;
    partial.openExpertFile = async (name) => {
      const handle = await openFile(name);
      if (losses > 0) return handle;
      losses += 1;
      handle.datasync = async () => {
        const { size } = await handle.stat();
        await handle.write(Buffer.alloc(size), 0, size, 0);
        throw Object.assign(new Error('EIO: i/o error, fdatasync'), { code: 'EIO' });
      };
      return handle;
    };
    const lost = fetcher.awaitExpert(0, 0, never()) ?? Promise.resolve();
    await assert.rejects(lost, { code: 'STORAGE_FAILED' });
    clockOffsetMs = 10_000;
    fetcher.need([{ layer: 0, expert: 0 }]);
    await ready(fetcher);
    assert.equal(losses, 1);
    assertFetched([{ layer: 0, expert: 0 }]);
  });

  it('makes the directory an ordinary pack when it is complete', async () => {
    const fetcher = await create([await setting.serve(new PackServer(pack, RUNTIME))]);
    fetcher.need(everything);
    await waitUntil('the pack is whole', () => partial.isWhole);
    const { openServedPack } = await import('../../../packs/open-served-pack.js');
    assert.equal((await openServedPack(setting.directory)).packDigest, pack.packDigest);
  });

  it('writes no more of a file than the manifest names, and leaves none of the excess', async () => {
    const share = new PackServer(pack, RUNTIME);
    const expertFiles = new Set(pack.manifest.files.map(({ name }) => name).filter((name) => /^experts-/.test(name)));
    let surplus = 0;
    const flooding = {
      ...interruptedShare(share, () => undefined),
      read: async function* (request: ReadPackRequest, signal: AbortSignal, peer: PeerContext) {
        yield* share.read(request, signal, peer);
        if (expertFiles.has(request.file)) return;
        while (!signal.aborted && surplus < 1000) {
          surplus += 1;
          yield { bytes: Buffer.alloc(64 * 1024) };
        }
      },
    };
    const fetcher = await create([await setting.serve(flooding)]);
    fetcher.need(everything);
    await ready(fetcher);
    await waitUntil('a file is refused', () => surplus > 0 && infos.includes('the pack cannot be completed yet'));
    assert.ok(surplus < 1000, 'all that the peer sent was taken');
    assert.deepEqual(
      readdirSync(setting.directory).filter((name) => name.endsWith('.partial')),
      [],
    );
    assert.equal(partial.isWhole, false);
  });

  it('ends at once when it is closed, whatever is running', async () => {
    const stuck = interruptedShare(new PackServer(pack, RUNTIME), () => delay(60_000, undefined, { ref: false }));
    const fetcher = await create([await setting.serve(stuck)]);
    fetcher.need(everything);
    const waiting = fetcher.awaitExpert(1, 1, never()) ?? Promise.resolve();
    const failed = assert.rejects(waiting, { code: 'CANCELLED' });
    await delay(300);
    await fetcher.close();
    await failed;
  });
});
