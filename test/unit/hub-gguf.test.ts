import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { openGguf } from '../../packs/gguf/open-gguf.js';
import { ggufPartsOnHub, refuseUnnamedGguf } from '../../packs/hub/gguf-parts-on-hub.js';
import { findSnapshot, type HubFile, listFilesOf } from '../../packs/hub/hub-files.js';
import { isPackNameOf, packName } from '../../packs/hub/hub-repository.js';
import { RemoteBytes } from '../../packs/hub/remote-bytes.js';
import { openRemoteGguf } from '../../packs/hub/remote-gguf.js';
import { codecSetting } from '../../packs/format/pack-codec.js';
import { NATIVE_PACKING_TOOLS } from '../../packs/packing/native-tools.js';
import { comingNeeds } from '../../packs/packing/pack-coming.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { isOdmoe } from './gguf-refusals.js';
import { clientOf, type SmallHub, withSmallHub } from './small-hub.js';
import { noise, withTemporaryDirectory } from './tiny-checkpoint.js';
import { refusal } from './tiny-pack.js';

const COMMIT = '0123456789abcdef0123456789abcdef01234567';
const ID = 'owner/model-GGUF';
const fixture = join(packageRoot(), 'test', 'fixtures', 'formats', 'gguf-qwen3moe-bf16-split');
const PARTS = [1, 2, 3].map((number) => `qwen3moe-bf16-split-0000${number}-of-00003.gguf`);

function named(...paths: string[]): HubFile[] {
  return paths.map((path) => ({ path, sizeBytes: 1e9, digest: { kind: 'sha256', hex: '' } }));
}

/** A hub with the split fixture in a folder. */
async function withGguf(use: (hub: SmallHub, directory: string) => Promise<void>): Promise<void> {
  await withTemporaryDirectory((directory) =>
    withSmallHub(async (hub) => {
      const files = new Map<string, Uint8Array>([['README.md', Buffer.from('words')]]);
      for (const name of PARTS) files.set(`BF16/${name}`, readFileSync(join(fixture, name)));
      hub.repositories.set(ID, { commit: COMMIT, files, isLarge: (path) => path.endsWith('.gguf') });
      await use(hub, directory);
    }),
  );
}

describe('GGUF files on the hub', () => {
  const files = named(
    'a-Q8_0.gguf',
    'mmproj-F16.gguf',
    'x/b-00002-of-00002.gguf',
    'x/b-00001-of-00002.gguf',
    'README.md',
  );

  it('are all parts of the model of which one is named', () => {
    const both = ['x/b-00001-of-00002.gguf', 'x/b-00002-of-00002.gguf'];
    for (const wanted of both)
      assert.deepEqual(
        ggufPartsOnHub(ID, files, wanted).map(({ path }) => path),
        both,
      );
    assert.equal(ggufPartsOnHub(ID, files, 'a-Q8_0.gguf').length, 1);
    assert.equal(ggufPartsOnHub(ID, [...files, ...named('x/b.gguf')], 'x/b.gguf').length, 1);
  });

  it('are listed where none or another one is named', () => {
    const list = /a-Q8_0\.gguf \(.*GB\), x\/b-00001-of-00002\.gguf \(.*GB, 2 parts\)/;
    for (const wanted of ['Q8_0', 'a-Q4_0.gguf', 'b-00001-of-00002.gguf', 'x/b.gguf', 'mmproj-F16.gguf', 'README.md']) {
      assert.throws(() => ggufPartsOnHub(ID, files, wanted), refusal('MODEL_NOT_FOUND', list), wanted);
    }
    assert.throws(() => refuseUnnamedGguf(ID, files), refusal('USAGE', list));
    assert.throws(() => refuseUnnamedGguf(ID, files), refusal('USAGE', /odmoe pull owner\/model-GGUF:a-Q8_0\.gguf/));
    refuseUnnamedGguf(ID, named('README.md', 'pytorch_model.bin'));
    assert.throws(() => ggufPartsOnHub(ID, [], 'a.gguf'), refusal('MODEL_NOT_FOUND', /it has no GGUF files/));
  });

  it('are refused where a part is missing', () => {
    for (const present of [['a-00001-of-00003.gguf', 'a-00003-of-00003.gguf'], ['a-00002-of-00002.gguf']]) {
      const wanted = present.at(-1) ?? '';
      assert.throws(() => ggufPartsOnHub(ID, named(...present), wanted), refusal('MODEL_CORRUPT', /of \d parts/));
    }
  });

  it('have packs of their own, the same for each part', () => {
    const model = { id: ID, commit: COMMIT };
    const [first, second] = PARTS.map((name) => packName({ ...model, file: `BF16/${name}` }));
    assert.equal(first, 'owner--model-GGUF--0123456789ab--BF16--qwen3moe-bf16-split-of-00003');
    assert.equal(second, first);
    assert.ok(isPackNameOf(first ?? '', { id: ID, file: `BF16/${PARTS[0]}` }));
    assert.ok(!isPackNameOf(first ?? '', { id: ID }) && !isPackNameOf(first ?? '', { id: ID, file: 'other.gguf' }));
    assert.ok(isPackNameOf(packName(model), { id: ID }) && !isPackNameOf(packName(model), { id: ID, file: 'a.gguf' }));
  });

  it('are read in ranges, in one transfer as long as they are read forward, whatever breaks', async () => {
    const bytes = noise(300_000, 7);
    await withSmallHub(async (hub) => {
      hub.repositories.set(ID, { commit: COMMIT, files: new Map([['a.gguf', bytes]]), isLarge: () => true });
      const client = clientOf(hub);
      const snapshot = await findSnapshot(client, { id: ID }, 'main');
      const [file] = await listFilesOf(client, snapshot);
      const remote = new RemoteBytes(client, snapshot, file ?? assert.fail());
      const reads = async (from: number, count: number): Promise<void> => {
        const into = new Uint8Array(count);
        await remote.read(from, into);
        assert.ok(Buffer.from(into).equals(bytes.subarray(from, from + count)));
      };
      await reads(0, 10);
      await reads(10, 100_000);
      assert.equal(hub.transfers.length, 1);
      hub.faults.push({ kind: 'cut', afterBytes: 1000 }, { kind: 'whole' });
      await reads(200_000, 100_000);
      await reads(5, 299_995);
      assert.equal(hub.transfers.length, 4);
      remote.close();
    });
  });

  it('are opened by their headers, and then downloaded as they are', async () => {
    await withGguf(async (hub, directory) => {
      const client = clientOf(hub);
      const wanted = `BF16/${PARTS[1]}`;
      const snapshot = await findSnapshot(client, { id: ID, file: wanted }, 'main');
      assert.equal(snapshot.file, wanted);
      const arriving = join(directory, 'arriving');
      const remote = await openRemoteGguf(client, snapshot, wanted, arriving);
      assert.deepEqual(readdirSync(arriving), ['pull.lock']);
      const local = await openGguf(join(fixture, PARTS[0] ?? ''));
      assert.deepEqual([remote.checkpoint.shape, remote.checkpoint.name], [local.shape, local.name]);
      hub.faults.push({ kind: 'cut', afterBytes: 500 });
      const path = await remote.bring(0, () => undefined);
      assert.equal(path, join(arriving, PARTS[0] ?? ''));
      for (const name of PARTS) assert.ok(readFileSync(join(arriving, name)).equals(readFileSync(join(fixture, name))));
      await remote.release();
      assert.equal(readdirSync(arriving).filter((name) => name.endsWith('.gguf')).length, 3, 'what has come stays');
    });
  });

  it('tell the room of their pack, also where experts have biases', async () => {
    await withGguf(async (hub, directory) => {
      const path = join(packageRoot(), 'test', 'fixtures', 'formats', 'gguf-gptoss-mxfp4', 'gptoss-mxfp4.gguf');
      hub.repositories.set(ID, { commit: COMMIT, files: new Map([['a.gguf', readFileSync(path)]]) });
      const client = clientOf(hub);
      const snapshot = await findSnapshot(client, { id: ID }, 'main');
      const remote = await openRemoteGguf(client, snapshot, 'a.gguf', join(directory, 'arriving'));
      const packing = { codec: codecSetting('raw', null), shards: 1 };
      const [far, here] = [remote.checkpoint, await openGguf(path)];
      const needs = await comingNeeds(far, packing, NATIVE_PACKING_TOOLS);
      assert.equal(needs.packBytes, (await comingNeeds(here, packing, NATIVE_PACKING_TOOLS)).packBytes);
      await remote.release();
    });
  });

  it('are refused by their headers in words that name the model, and nothing stays', async () => {
    await withGguf(async (hub, directory) => {
      const files = new Map([['a.gguf', readFileSync(join(fixture, PARTS[1] ?? ''))]]);
      hub.repositories.set(ID, { commit: COMMIT, files, isLarge: () => true });
      const client = clientOf(hub);
      const snapshot = await findSnapshot(client, { id: ID }, 'main');
      const opened = openRemoteGguf(client, snapshot, 'a.gguf', join(directory, 'arriving'));
      await assert.rejects(opened, isOdmoe('MODEL_CORRUPT', /^owner\/model-GGUF: a\.gguf.*part 2 of 3/));
      assert.deepEqual(readdirSync(directory), []);
    });
  });
});
