import assert from 'node:assert/strict';
import { appendFileSync, mkdirSync, readFileSync, readdirSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fetchPlace, PartialPack } from '../../engine/fetching/index.js';
import { openModelSource, openServedPack } from '../../engine/loading/index.js';
import type { Pack } from '../../shared/pack/open-pack.js';
import { LockHeldError } from '../../shared/storage/process-lock.js';
import { FetchSetting, testPack } from './fetch-test-pack.js';

describe('a pack that is being fetched', () => {
  const setting = new FetchSetting();
  let original: Pack;
  let manifest: Buffer;

  before(async () => {
    original = await testPack();
    manifest = readFileSync(join(original.directory, 'manifest.json'));
  });

  const journal = (): string => join(setting.directory, 'fetching.jsonl');
  const heldCount = ({ held }: PartialPack): number => countBits(held.toBits());

  async function begun(...experts: readonly [layer: number, expert: number][]): Promise<PartialPack> {
    const partial = await PartialPack.begin(setting.directory, manifest);
    for (const [layer, expert] of experts) {
      await (await partial.openExpertFile(partial.extent(layer, expert).file)).close();
      await partial.record(layer, expert);
    }
    return partial;
  }

  async function resumed(): Promise<PartialPack> {
    return (await PartialPack.resume(setting.directory)) ?? assert.fail('nothing to go on with');
  }

  it('is what main has, with holes, and goes on where it stopped', async () => {
    const partial = await begun([0, 1], [3, 7]);
    assert.equal(partial.pack.packDigest, original.packDigest);
    const file = join(setting.directory, 'experts-00003.bin');
    assert.equal(statSync(file).size, statSync(join(original.directory, 'experts-00003.bin')).size);
    assert.ok(statSync(file).blocks * 512 < statSync(file).size / 2, 'the file takes its whole size on the disk');
    await partial.close();
    const again = await resumed();
    assert.ok(again.held.has(0, 1) && again.held.has(3, 7));
    assert.equal(heldCount(again), 2);
    await again.close();
  });

  it('opens as no pack, with a message that says what it is', async () => {
    await (await begun()).close();
    for (const open of [openServedPack, openModelSource]) {
      await assert.rejects(open(setting.directory), { code: 'PACK_INCOMPLETE', message: /a worker has fetched/ });
    }
  });

  it('belongs to one worker at a time', async () => {
    const partial = await begun();
    await assert.rejects(PartialPack.resume(setting.directory), (thrown: unknown) => {
      assert.ok(thrown instanceof LockHeldError);
      assert.match(thrown.message, /fetches into it; give each worker its own --model/);
      return true;
    });
    await assert.rejects(PartialPack.begin(setting.directory, manifest), LockHeldError);
    await partial.close();
    await (await resumed()).close();
  });

  it('takes no notice of a torn line, of experts that the model has not, and of files that are not there', async () => {
    await (await begun([0, 1], [2, 2], [1, 4])).close();
    appendFileSync(journal(), '\n{"layer":99,"expert":0}\n\n{"layer":0,"exp');
    truncateSync(join(setting.directory, 'experts-00002.bin'), 100);
    const again = await resumed();
    assert.equal(heldCount(again), 2);
    await again.record(0, 3);
    await again.close();
    const third = await resumed();
    assert.ok(third.held.has(0, 1) && third.held.has(1, 4) && third.held.has(0, 3));
    assert.equal(heldCount(third), 3);
    await third.close();
  });

  it('is begun anew when its journal is of nothing, or of another pack', async () => {
    for (const content of ['', 'nonsense\n', '{"format":"odmoe-fetching","pack_digest":"other"}\n']) {
      await (await begun([0, 1])).close();
      writeFileSync(journal(), content);
      assert.equal(await fetchPlace(setting.directory), 'begun');
      assert.equal(await PartialPack.resume(setting.directory), null);
      const anew = await begun();
      assert.equal(heldCount(anew), 0);
      assert.ok(
        !readdirSync(setting.directory).includes('experts-00000.bin'),
        'what nobody vouches for is still there',
      );
      await anew.close();
    }
  });

  it('goes nowhere where something else stands', async () => {
    assert.equal(await fetchPlace(setting.directory), 'new');
    mkdirSync(setting.directory);
    assert.equal(await fetchPlace(setting.directory), 'new');
    writeFileSync(join(setting.directory, 'holiday.jpg'), '');
    assert.equal(await fetchPlace(setting.directory), 'other');
    assert.equal(await fetchPlace(original.directory), 'other');
    await assert.rejects(fetchPlace(join(setting.directory, 'holiday.jpg')), { code: 'STORAGE_FAILED' });
  });

  it('does not call itself whole before it is', async () => {
    const partial = await begun();
    await assert.rejects(partial.promote(), { code: 'INTERNAL' });
    assert.deepEqual(
      (await partial.missingFiles()).map(({ name }) => name).sort(),
      original.manifest.files
        .map(({ name }) => name)
        .filter((name) => !name.startsWith('experts-'))
        .sort(),
    );
    await partial.close();
  });
});

function countBits(bytes: Uint8Array): number {
  return [...bytes].reduce((sum, byte) => sum + byte.toString(2).replaceAll('0', '').length, 0);
}
