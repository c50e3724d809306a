import assert from 'node:assert/strict';
import { closeSync, openSync, readFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { crc32c } from '../../native/index.js';
import { ExpertFetcher } from '../../packs/fetching/expert-fetcher.js';
import { PackPeers } from '../../packs/fetching/pack-peers.js';
import { PackServer } from '../../packs/fetching/pack-server.js';
import { PartialPack, reopenFetch } from '../../packs/fetching/partial-pack.js';
import { openPack, type Pack } from '../../packs/format/open-pack.js';
import { NATIVE_BYTE_TOOLS } from '../../packs/packing/native-tools.js';
import { verifyPack } from '../../packs/packing/verify-pack.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { waitUntil } from '../integration/harness/wait-until.js';
import { openPackSource, RUNTIME } from '../wall.js';
import { FetchSetting, SILENT } from './fetch-test-pack.js';
import { pack, refusal } from './tiny-pack.js';

describe('fetching a pack of quantized experts with biases', function () {
  this.timeout(60_000);
  const setting = new FetchSetting();
  let original: Pack;

  async function makePack(): Promise<void> {
    const directory = join(setting.parent, 'main');
    await pack(join(packageRoot(), 'test', 'fixtures', 'gptoss-mxfp4'), directory, { tools: NATIVE_BYTE_TOOLS });
    original = await openPack(directory);
  }

  async function fetcherInto(partial: PartialPack): Promise<ExpertFetcher> {
    const { expertLayers: layers, experts } = original.shape;
    const peers = new PackPeers({
      packDigest: original.packDigest,
      layers,
      experts,
      runtime: RUNTIME,
      log: SILENT,
      connect: (address) => openPackSource(address),
      onDescribed: () => fetcher.peersChanged(),
    });
    const fetcher: ExpertFetcher = new ExpertFetcher({
      store: partial,
      peers,
      crc32c,
      runtime: RUNTIME,
      log: SILENT,
      onFetched: () => undefined,
    });
    setting.users.push(fetcher);
    peers.setAddresses([await setting.serve(new PackServer(original, RUNTIME))], []);
    return fetcher;
  }

  async function begin(): Promise<PartialPack> {
    const manifest = readFileSync(join(original.directory, 'manifest.json'));
    return PartialPack.begin(setting.directory, manifest, RUNTIME);
  }

  it('fetches an expert with its biases, and no other', async () => {
    await makePack();
    const partial = await begin();
    const fetcher = await fetcherInto(partial);
    fetcher.need([{ layer: 2, expert: 5 }]);
    await waitUntil('the expert is here', () => fetcher.progress.ready);
    const [found, expected] = [partial.pack.expert(2, 5), original.expert(2, 5)];
    assert.ok((expected.biases?.length ?? 0) > 0);
    assert.deepEqual(found.biases, expected.biases);
    // Experts that have not come are a hole in a file, or have no file. They must not be read as biases.
    assert.throws(() => partial.pack.expert(2, 4).biases, refusal('PACK_CORRUPT', /biases of an expert at byte/));
    assert.throws(() => partial.pack.expert(0, 0).biases, refusal('PACK_CORRUPT', /no such file/));
  });

  it('completes the pack, and fetches damaged biases again', async () => {
    await makePack();
    const partial = await begin();
    const fetcher = await fetcherInto(partial);
    fetcher.need(original.manifest.experts.map(({ layer, expert }) => ({ layer, expert })));
    await waitUntil('the pack is whole', () => partial.isWhole);
    const whole = await openPack(setting.directory);
    assert.equal(whole.packDigest, original.packDigest);
    assert.deepEqual(await verifyPack(whole, NATIVE_BYTE_TOOLS), []);
    const { file, biases } = whole.manifest.experts[9] ?? assert.fail();
    const handle = openSync(join(setting.directory, file), 'r+');
    writeSync(handle, Uint8Array.of(1, 2, 3), 0, 3, (biases?.offset_bytes ?? 0) + 4);
    closeSync(handle);
    assert.throws(() => whole.expert(1, 1).biases, refusal('PACK_CORRUPT', /their checksum is another/));
    assert.deepEqual(
      (await verifyPack(whole, NATIVE_BYTE_TOOLS)).map(({ place }) => place),
      ['layer 1 expert 1 biases', null],
    );
    await fetcher.forget(1, 1);
    await waitUntil('it is here again', () => partial.held.has(1, 1));
    assert.deepEqual(partial.pack.expert(1, 1).biases, original.expert(1, 1).biases);
    assert.equal(await reopenFetch(original.directory), false);
  });
});
