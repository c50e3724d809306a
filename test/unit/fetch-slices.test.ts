import assert from 'node:assert/strict';
import {
  closeSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { crc32c } from '../../native/index.js';
import { fetchSlicesManifest } from '../../packs/fetching/fetch-manifest.js';
import { PackServer } from '../../packs/fetching/pack-server.js';
import { PartialPack } from '../../packs/fetching/partial-pack.js';
import { PartialSlices } from '../../packs/fetching/partial-slices.js';
import { type ServedSlices, servedSlices } from '../../packs/fetching/served-slices.js';
import { openSlicesOfMain, SlicesFetch, type SlicesFetchOptions } from '../../packs/fetching/slices-fetch.js';
import { openPack, type Pack } from '../../packs/format/open-pack.js';
import { type Slice, type SliceSet, SLICES } from '../../packs/format/pack-layout.js';
import { NATIVE_SLICING_TOOLS } from '../../packs/slices/native-slicing-tools.js';
import { openSlices, type Slices } from '../../packs/slices/open-slices.js';
import { sliceExtents } from '../../packs/slices/slice-extents.js';
import { verifySliceFiles } from '../../packs/slices/verify-slices.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ExpertId } from '../../shared/model/expert-id.js';
import type { ExpertSource } from '../../shared/model/tensor-source.js';
import { waitUntil } from '../integration/harness/wait-until.js';
import { openPackSource, RUNTIME } from '../wall.js';
import { FetchSetting, interruptedShare, type PackService, SILENT } from './fetch-test-pack.js';
import { slice, storedBytes, withPack } from './sliced-pack.js';
import { refusal } from './tiny-pack.js';

const never = new AbortController().signal;

describe('fetching slices', function () {
  this.timeout(120_000);
  const setting = new FetchSetting();
  let kept: string;
  let original: Pack;
  let slices: Slices;
  let everything: ExpertId[];
  let partial: PartialSlices;

  before(async () => {
    kept = mkdtempSync(join(tmpdir(), 'odmoe-sliced-'));
    await withPack(async (output) => {
      await slice(output);
      cpSync(output, kept, { recursive: true });
    });
    original = await openPack(kept);
    slices = await openSlices(kept);
    everything = original.manifest.experts.map(({ layer, expert }) => ({ layer, expert }));
  });

  after(() => rmSync(kept, { recursive: true, force: true }));

  const shareOf = (served: ServedSlices | null = servedSlices(slices, original.shape)): PackServer =>
    new PackServer(original, RUNTIME, { slices: served });

  /** The worker's directory: of a pack of which it needs no lossless part. */
  async function workerPack(): Promise<Pack> {
    const manifest = readFileSync(join(original.directory, 'manifest.json'));
    const partialPack = await PartialPack.begin(setting.directory, manifest, RUNTIME);
    setting.users.push(partialPack);
    return partialPack.pack;
  }

  async function open(
    set: SliceSet,
    addresses: readonly string[],
    changes: Partial<SlicesFetchOptions> = {},
    pack?: Pack,
  ): Promise<SlicesFetch> {
    const main = openPackSource(addresses[0] ?? '');
    try {
      partial = await openSlicesOfMain({ pack: pack ?? (await workerPack()), set }, main, RUNTIME, never);
    } finally {
      main.close();
    }
    const connect = (address: string): ReturnType<typeof openPackSource> => openPackSource(address);
    const own = { partial, connect, crc32c, runtime: RUNTIME, log: SILENT, onFetched: () => undefined };
    const fetch = new SlicesFetch({ ...own, ...changes });
    setting.users.push(fetch);
    fetch.setAddresses(addresses.slice(0, 1), addresses.slice(1));
    return fetch;
  }

  const ready = (fetch: SlicesFetch): Promise<void> => waitUntil('all slices are here', () => fetch.isReady);

  async function bytesOf({ gate, up, down }: ExpertSource, planes: number): Promise<Buffer[]> {
    const chunks = [gate, up, down].flatMap((matrix) => matrix.chunks).filter(({ plane }) => plane < planes);
    assert.equal(chunks.length, 3 * planes);
    return Promise.all(chunks.map(async (chunk) => Buffer.from(await storedBytes(chunk))));
  }

  async function assertSame(found: Slices, places: readonly ExpertId[], planes: number): Promise<void> {
    for (const { layer, expert } of places) {
      const [ours, theirs] = [found.expert(layer, expert), slices.expert(layer, expert)];
      assert.equal(ours.gate.split, slices.split);
      const expected = await bytesOf(theirs, planes);
      assert.ok(expected.every((bytes) => bytes.some((byte) => byte !== 0)));
      assert.deepEqual(await bytesOf(ours, planes), expected, `layer ${layer} expert ${expert}`);
    }
  }

  /** Writes over a part of an expert's slice, in this directory. */
  function damage(directory: string, { layer, expert }: ExpertId, part: Slice): void {
    const extent = sliceExtents(slices.manifest, part)[layer * original.shape.experts + expert] ?? assert.fail();
    const handle = openSync(join(directory, extent.file), 'r+');
    writeSync(handle, Uint8Array.of(1, 2, 3, 4, 5), 0, 5, extent.offsetBytes + 3);
    closeSync(handle);
  }

  it('brings both slices of the needed experts and no others, upper ones first', async () => {
    const reads: string[] = [];
    const share = shareOf();
    const service: PackService = {
      ...interruptedShare(share, () => undefined),
      read: (request, signal, peer) => {
        reads.push(request.file);
        return share.read(request, signal, peer);
      },
    };
    const fetch = await open('both', [await setting.serve(service)]);
    const needed = everything.filter(({ layer }) => layer === 1);
    fetch.need(needed);
    assert.equal(fetch.isReady, false);
    await ready(fetch);
    await assertSame(partial.slices, needed, 2);
    assert.deepEqual(
      reads,
      SLICES.flatMap((part) => needed.map(() => `slices-00001.${part}.bin`)),
    );
    assert.equal(partial.held.upper.has(0, 0), false);
    assert.equal(partial.isWhole, false);
    assert.equal(existsSync(join(setting.directory, 'slices.json')), false);
  });

  it('brings a lower slice for which a load waits without waiting for upper ones', async () => {
    const fetch = await open('both', [await setting.serve(shareOf())]);
    await fetch.awaitSlice({ layer: 0, expert: 1 }, 'lower', never);
    assert.ok(partial.held.lower.has(0, 1) && !partial.held.upper.has(0, 1));
    assert.equal(fetch.awaitSlice({ layer: 0, expert: 1 }, 'lower', never), null);
  });

  it('makes slices that are whole, beside a whole pack', async () => {
    mkdirSync(setting.directory);
    for (const { name } of [...original.manifest.files, { name: 'manifest.json' }]) {
      cpSync(join(kept, name), join(setting.directory, name));
    }
    const pack = await openPack(setting.directory);
    const fetch = await open('both', [await setting.serve(shareOf())], {}, pack);
    fetch.need(everything);
    await waitUntil('the slices are whole', () => partial.isWhole);
    const found = await openSlices(setting.directory);
    assert.equal(found.digest, slices.digest);
    assert.deepEqual(await verifySliceFiles(found, NATIVE_SLICING_TOOLS, () => undefined), []);
    assert.equal((await openPack(setting.directory)).packDigest, original.packDigest);
  });

  it('brings upper slices alone, which can be used without the lower ones', async () => {
    cpSync(kept, setting.directory, { recursive: true, filter: (path) => !path.includes('slices') });
    const pack = await openPack(setting.directory);
    const fetch = await open('upper', [await setting.serve(shareOf())], {}, pack);
    fetch.need(everything);
    await waitUntil('the upper slices are whole', () => partial.isWhole);
    await assertSame(await openSlices(setting.directory, 'upper'), everything, 1);
    await assertSame(partial.slices, everything, 1);
    for (const { name } of slices.manifest.files) {
      assert.equal(existsSync(join(setting.directory, name)), name.includes('upper'), name);
    }
    await assert.rejects(openSlices(setting.directory), refusal('PACK_INCOMPLETE', /holds the upper slices alone/));
    assert.throws(() => fetch.awaitSlice({ layer: 0, expert: 0 }, 'lower', never), { code: 'INTERNAL' });
    assert.equal(fetch.lowerProgress, null);
  });

  it('adds lower slices later to upper ones that are there', async () => {
    const address = await setting.serve(shareOf());
    const upper = await open('upper', [address]);
    upper.need(everything);
    await waitUntil('the upper slices are whole', () => partial.isWhole);
    await upper.close();
    const both = await open('both', [address], {}, partial.pack);
    assert.ok(partial.held.upper.isComplete && partial.held.lower.isEmpty && !partial.isWhole);
    both.need(everything);
    await waitUntil('both are whole', () => partial.isWhole);
    assert.equal(both.upperProgress.receivedBytes, 0);
    await assertSame(partial.slices, everything, 2);
  });

  it('goes on after an interruption with what is missing', async () => {
    const address = await setting.serve(
      interruptedShare(shareOf(), (pieces) => (pieces > 5 ? new Promise<void>(() => undefined) : undefined)),
    );
    const first = await open('both', [address]);
    first.need(everything);
    await waitUntil('some slices are here', () => first.upperProgress.heldBytes > 0 && !first.isReady);
    await first.close();
    const { pack, held } = partial;
    const before = [held.upper.toBits(), held.lower.toBits()];
    const hadUpper = (layer: number, expert: number): boolean => held.upper.has(layer, expert);
    // The record of the last slice is torn, as by a crash.
    const journal = join(setting.directory, 'fetching-slices.jsonl');
    writeFileSync(journal, `${readFileSync(journal, 'utf8')}\n{"layer":0,"exp`);
    const again = shareOf();
    const reads: string[] = [];
    const recording: PackService = {
      ...interruptedShare(again, () => undefined),
      read: (request, signal, peer) => {
        reads.push(`${request.file} ${request.offsetBytes}`);
        return again.read(request, signal, peer);
      },
    };
    const second = await open('both', [await setting.serve(recording)], {}, pack);
    assert.deepEqual([partial.held.upper.toBits(), partial.held.lower.toBits()], before);
    second.need(everything);
    await ready(second);
    const missing = sliceExtents(slices.manifest, 'upper').filter(({ layer, expert }) => !hadUpper(layer, expert));
    const expected = missing.map(({ file, offsetBytes }) => `${file} ${offsetBytes}`);
    assert.ok(missing.length < everything.length);
    const asked = reads.filter((read) => read.includes('upper'));
    assert.deepEqual(asked.sort(), expected.sort());
    await assertSame(partial.slices, everything, 2);
  });

  it('does not count a slice behind the end of a file that was cut', async () => {
    const address = await setting.serve(shareOf());
    const fetch = await open('upper', [address]);
    fetch.need(everything.filter(({ layer }) => layer === 0));
    await ready(fetch);
    await fetch.close();
    writeFileSync(join(setting.directory, 'slices-00000.upper.bin'), '');
    await open('upper', [address], {}, partial.pack);
    assert.ok(partial.held.upper.isEmpty, 'a hole is taken for a slice');
  });

  it('fetches a damaged slice again, and the slices are not whole meanwhile', async () => {
    const fetch = await open('both', [await setting.serve(shareOf())]);
    fetch.need(everything);
    await waitUntil('the slices are whole', () => partial.isWhole);
    for (const part of SLICES) {
      damage(setting.directory, { layer: 0, expert: 1 }, part);
      await assert.rejects(assertSame(partial.slices, [{ layer: 0, expert: 1 }], 2));
      const forgotten = fetch.forget({ layer: 0, expert: 1 }, part);
      await forgotten;
      await waitUntil('the slices are whole again', () => partial.isWhole);
      await assertSame(partial.slices, [{ layer: 0, expert: 1 }], 2);
    }
  });

  it('takes nothing from a peer that sends wrong bytes', async () => {
    const copy = join(setting.parent, 'hostile');
    cpSync(kept, copy, { recursive: true });
    for (const place of everything) for (const part of SLICES) damage(copy, place, part);
    const wrong = new PackServer(original, RUNTIME, {
      slices: { ...servedSlices(slices, original.shape), directory: copy },
    });
    const warnings: string[] = [];
    const log = { ...SILENT, warn: (event: string) => void warnings.push(event) };
    const addresses = [await setting.serve(shareOf()), await setting.serve(wrong)];
    const fetch = await open('both', addresses, { log });
    fetch.need(everything);
    await ready(fetch);
    assert.ok(warnings.includes('a peer sent a damaged expert'), 'the hostile peer was not asked');
    await assertSame(partial.slices, everything, 2);
    assert.deepEqual(await verifySliceFiles(partial.slices, NATIVE_SLICING_TOOLS, () => undefined), []);
  });

  it('reads nothing from a peer that has other slices, and none from one that has none', async () => {
    let asked = 0;
    const countReads = (share: PackServer): PackService => ({
      ...interruptedShare(share, () => undefined),
      read: (request, signal, peer) => {
        asked += 1;
        return share.read(request, signal, peer);
      },
    });
    const others = shareOf({ ...servedSlices(slices, original.shape), digest: 'f'.repeat(64) });
    const addresses = [shareOf(), countReads(others), countReads(shareOf(null))];
    const fetch = await open('both', await Promise.all(addresses.map((share) => setting.serve(share))));
    fetch.need(everything);
    await ready(fetch);
    assert.equal(asked, 0);
    await assertSame(partial.slices, everything, 2);
  });

  it('takes a slices.json of the digest that main gives, and no other', async () => {
    const { packDigest } = original;
    const share = shareOf();
    const source = openPackSource(await setting.serve(share));
    const request = { packDigest, slicesDigest: slices.digest };
    const bytes = await fetchSlicesManifest(source, request, never);
    assert.deepEqual(bytes, readFileSync(join(kept, 'slices.json')));
    const other = { packDigest, slicesDigest: 'f'.repeat(64) };
    await assert.rejects(
      fetchSlicesManifest(source, other, never),
      refusal('NODE_REFUSED', /slices asked for are fff/),
    );
    source.close();
    const changed: PackService = {
      ...interruptedShare(share, () => undefined),
      manifest: async function* () {
        yield { bytes: Buffer.from('{}') };
      },
    };
    await assert.rejects(
      open('both', [await setting.serve(changed)]),
      refusal('PACK_CORRUPT', /slices\.json that came/),
    );
    assert.equal(existsSync(join(setting.directory, 'fetching-slices.json')), false);
    const wrong = PartialSlices.begin({ pack: original, digest: 'f'.repeat(64), set: 'both' }, bytes, RUNTIME);
    await assert.rejects(wrong, refusal('PACK_CORRUPT', /has the digest/));
  });

  it('is refused where main has no slices', async () => {
    await assert.rejects(
      open('both', [await setting.serve(shareOf(null))]),
      refusal('PACK_INCOMPLETE', /main has no slices of its pack/),
    );
  });

  it('begins anew where main has other slices now, and leaves slices alone that it did not fetch', async () => {
    const fetch = await open('upper', [await setting.serve(shareOf())]);
    fetch.need(everything);
    await waitUntil('the upper slices are whole', () => partial.isWhole);
    await fetch.close();
    const { pack } = partial;
    const text = readFileSync(join(kept, 'slices.json'), 'utf8').replace(
      /"odmoe_version":"[^"]*"/,
      '"odmoe_version":"other"',
    );
    const changed = join(setting.parent, 'changed');
    cpSync(kept, changed, { recursive: true });
    writeFileSync(join(changed, 'slices.json'), text);
    const now = servedSlices(await openSlices(changed), original.shape);
    assert.notEqual(now.digest, slices.digest);
    const again = await open('upper', [await setting.serve(shareOf(now))], {}, pack);
    assert.ok(partial.held.upper.isEmpty && !partial.isWhole);
    assert.equal(existsSync(join(setting.directory, 'slices-00000.upper.bin')), false);
    assert.equal(existsSync(join(setting.directory, 'slices.json')), false);
    await again.close();
    const foreign = await openPack(changed);
    await assert.rejects(
      open('both', [await setting.serve(shareOf())], {}, foreign),
      refusal('STORAGE_FAILED', /holds slices already that no worker fetched/),
    );
    assert.equal(readFileSync(join(changed, 'slices.json'), 'utf8'), text);
  });

  it('says that the disk is full, and goes on when there is room', async () => {
    let isFull = true;
    const requireRoom = (directory: string): Promise<void> =>
      isFull ? Promise.reject(new OdmoeError('STORAGE_FULL', `${directory}: no room`)) : Promise.resolve();
    const fetch = await open('upper', [await setting.serve(shareOf())], { requireRoom });
    const arrival = fetch.awaitSlice({ layer: 0, expert: 0 }, 'upper', never);
    await assert.rejects(arrival ?? assert.fail(), refusal('STORAGE_FULL', /no room/));
    assert.match(fetch.upperProgress.problem, /no room/);
    isFull = false;
    await waitUntil('the slice is here', () => partial.held.upper.has(0, 0), 20_000);
  });

  it('belongs to one worker at a time', async () => {
    const address = await setting.serve(shareOf());
    await open('upper', [address]);
    await assert.rejects(
      open('upper', [address], {}, partial.pack),
      /fetches into it; give each worker its own --model/,
    );
  });

  it('gives other workers the slices that have come, and no others', async () => {
    const fetch = await open('upper', [await setting.serve(shareOf())]);
    fetch.need([{ layer: 0, expert: 1 }]);
    await ready(fetch);
    const source = openPackSource(await setting.serve(shareOf(partial)));
    try {
      const { slices: described } = await source.describe(5000);
      assert.equal(described?.digest, slices.digest);
      assert.deepEqual(Buffer.from(described.heldUpper), Buffer.from(partial.held.upper.toBits()));
      assert.ok(described.heldLower.every((byte) => byte === 0));
      const request = { packDigest: original.packDigest, slicesDigest: slices.digest };
      assert.deepEqual(await fetchSlicesManifest(source, request, never), readFileSync(join(kept, 'slices.json')));
      for (const part of SLICES) {
        for (const { layer, expert, file, offsetBytes, endBytes } of sliceExtents(slices.manifest, part)) {
          const read = { ...request, file, offsetBytes, lengthBytes: endBytes - offsetBytes };
          const all = collect(source.read(read, never));
          if (part === 'upper' && layer === 0 && expert === 1) {
            assert.deepEqual(await all, readFileSync(join(kept, file)).subarray(offsetBytes, endBytes));
          } else {
            await assert.rejects(all, { code: 'PACK_INCOMPLETE' }, `${part} of layer ${layer} expert ${expert}`);
          }
        }
      }
    } finally {
      source.close();
    }
  });

  it('serves files of slices to those only who name the slices', async () => {
    const read = { packDigest: original.packDigest, file: 'slices-00000.upper.bin', offsetBytes: 0, lengthBytes: 1 };
    const source = openPackSource(await setting.serve(shareOf()));
    const bare = openPackSource(await setting.serve(shareOf(null)));
    try {
      const { digest: slicesDigest } = slices;
      assert.equal((await collect(source.read({ ...read, slicesDigest }, never))).length, 1);
      await assert.rejects(collect(source.read(read, never)), { code: 'NODE_REFUSED' });
      await assert.rejects(collect(bare.read({ ...read, slicesDigest }, never)), { code: 'NODE_REFUSED' });
      const wrong = [{ file: 'slices-00099.upper.bin' }, { offsetBytes: 2 ** 40 }, { file: 'slices.json' }];
      for (const change of wrong) {
        const refused = collect(source.read({ ...read, slicesDigest, ...change }, never));
        await assert.rejects(refused, { code: 'PROTOCOL_VIOLATION' });
      }
    } finally {
      source.close();
      bare.close();
    }
  });
});

async function collect(pieces: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const piece of pieces) parts.push(Buffer.from(piece));
  return Buffer.concat(parts);
}
