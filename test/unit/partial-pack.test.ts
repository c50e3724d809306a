import assert from 'node:assert/strict';
import {
  appendFileSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';

import { fetchPlace, PartialPack, reopenFetch } from '../../packs/fetching/partial-pack.js';

import { openModelSource } from '../../packs/open-model-source.js';

import { openServedPack } from '../../packs/open-served-pack.js';

import type { Pack } from '../../packs/format/open-pack.js';

import { LockHeldError } from '../../shared/base/files/process-lock.js';

import { FetchSetting, testPack } from './fetch-test-pack.js';

import { RUNTIME } from '../wall.js';

describe('a partly fetched pack', () => {
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
    const partial = await PartialPack.begin(setting.directory, manifest, RUNTIME);
    for (const [layer, expert] of experts) {
      await (await partial.openExpertFile(partial.extent(layer, expert).file)).close();
      await partial.record(layer, expert);
    }
    return partial;
  }

  async function resumed(): Promise<PartialPack> {
    return (await PartialPack.resume(setting.directory, RUNTIME)) ?? assert.fail('nothing to go on with');
  }

  it('has the files of main, with holes, and continues where it stopped', async () => {
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

  it('does not open as a pack, and the message explains that it is partial', async () => {
    await (await begun()).close();
    for (const open of [openServedPack, openModelSource]) {
      await assert.rejects(open(setting.directory), { code: 'PACK_INCOMPLETE', message: /a worker has fetched/ });
    }
  });

  it('belongs to one worker at a time', async () => {
    const partial = await begun();
    await assert.rejects(PartialPack.resume(setting.directory, RUNTIME), (thrown: unknown) => {
      assert.ok(thrown instanceof LockHeldError);
      assert.match(thrown.message, /fetches into it; give each worker its own --model/);
      return true;
    });
    await assert.rejects(PartialPack.begin(setting.directory, manifest, RUNTIME), LockHeldError);
    await partial.close();
    await (await resumed()).close();
  });

  it('keeps a record that is written right behind a torn line', async () => {
    await (await begun([0, 1])).close();
    appendFileSync(journal(), '{"layer":0,"exp');
    const again = await resumed();
    assert.equal(heldCount(again), 1);
    await (await again.openExpertFile(again.extent(0, 3).file)).close();
    await again.record(0, 3);
    await again.close();
    const third = await resumed();
    assert.ok(third.held.has(0, 3), 'the record has become part of the torn line');
    assert.equal(heldCount(third), 2);
    await third.close();
  });

  it('ignores a torn line, experts that the model lacks, and missing files', async () => {
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

  it('does not count an expert as held where a file was once too short', async () => {
    await (await begun([2, 0], [2, 2])).close();
    const path = join(setting.directory, 'experts-00002.bin');
    const again = await resumed();
    const { endBytes } = again.extent(2, 0);
    await again.close();
    truncateSync(path, endBytes);
    const shorter = await resumed();
    assert.ok(shorter.held.has(2, 0) && !shorter.held.has(2, 2));
    await (await shorter.openExpertFile('experts-00002.bin')).close();
    assert.ok(statSync(path).size > endBytes);
    await shorter.close();
    const last = await resumed();
    assert.ok(last.held.has(2, 0) && !last.held.has(2, 2), 'a hole is taken for an expert');
    await last.close();
  });

  it('forgets an expert for good, until it is recorded again', async () => {
    const partial = await begun([0, 1], [1, 4]);
    await partial.forget(0, 1);
    assert.equal(heldCount(partial), 1);
    await partial.close();
    const again = await resumed();
    assert.ok(!again.held.has(0, 1) && again.held.has(1, 4));
    await again.record(0, 1);
    await again.close();
    const third = await resumed();
    assert.equal(heldCount(third), 2);
    await third.close();
  });

  it('is started again when its manifest is damaged', async () => {
    await (await begun([0, 1])).close();
    writeFileSync(join(setting.directory, 'fetching-manifest.json'), manifest.subarray(0, 100));
    assert.equal(await PartialPack.resume(setting.directory, RUNTIME), null);
  });

  describe('that has become whole', () => {
    async function whole(): Promise<PartialPack> {
      const partial = await begun(
        ...original.manifest.experts.map(({ layer, expert }) => [layer, expert] as [number, number]),
      );
      for (const { name } of original.manifest.files) {
        cpSync(join(original.directory, name), join(setting.directory, name));
      }
      await partial.promote();
      await partial.cleanUp();
      await openServedPack(setting.directory);
      return partial;
    }

    it('is fetched again where files are missing or too short', async () => {
      await whole();
      truncateSync(join(setting.directory, 'experts-00002.bin'), 100);
      rmSync(join(setting.directory, 'config.json'));
      await assert.rejects(openServedPack(setting.directory), { code: 'PACK_CORRUPT' });
      assert.equal(await reopenFetch(setting.directory), true);
      const again = await resumed();
      const { expertLayers, experts } = original.shape;
      assert.equal(heldCount(again), (expertLayers - 1) * experts);
      assert.deepEqual(
        (await again.missingFiles()).map(({ name }) => name),
        ['config.json'],
      );
      await again.close();
    });

    it('forgets an expert, and becomes whole again', async () => {
      const partial = await whole();
      await partial.forget(3, 7);
      assert.ok(!partial.isWhole);
      await assert.rejects(openServedPack(setting.directory), { code: 'PACK_INCOMPLETE' });
      await assert.rejects(PartialPack.resume(setting.directory, RUNTIME), LockHeldError);
      await partial.record(3, 7);
      await partial.promote();
      await partial.cleanUp();
      await openServedPack(setting.directory);
    });

    it('is partial after any loss while it becomes whole', async () => {
      const partial = await whole();
      await partial.forget(0, 0);
      await partial.record(0, 0);
      await Promise.all([partial.promote(), partial.forget(1, 1), partial.cleanUp()]);
      assert.ok(!partial.isWhole && !partial.held.isComplete);
      await partial.close();
      const again = await resumed();
      assert.ok(!again.held.has(1, 1) && again.held.has(0, 0));
      await again.close();
    });

    it('is left alone when it was not fetched', async () => {
      cpSync(original.directory, setting.directory, { recursive: true });
      truncateSync(join(setting.directory, 'experts-00002.bin'), 100);
      assert.equal(await reopenFetch(setting.directory), false);
      await assert.rejects(openServedPack(setting.directory), { code: 'PACK_CORRUPT' });
    });
  });

  it('is started again when its journal is empty, or of another pack', async () => {
    for (const content of ['', 'nonsense\n', '{"format":"odmoe-fetching","pack_digest":"other"}\n']) {
      await (await begun([0, 1])).close();
      writeFileSync(journal(), content);
      assert.equal(await fetchPlace(setting.directory), 'begun');
      assert.equal(await PartialPack.resume(setting.directory, RUNTIME), null);
      const anew = await begun();
      assert.equal(heldCount(anew), 0);
      assert.ok(
        !readdirSync(setting.directory).includes('experts-00000.bin'),
        'what nobody vouches for is still there',
      );
      await anew.close();
    }
  });

  it('is not written where other files exist', async () => {
    assert.equal(await fetchPlace(setting.directory), 'new');
    mkdirSync(setting.directory);
    assert.equal(await fetchPlace(setting.directory), 'new');
    writeFileSync(join(setting.directory, 'holiday.jpg'), '');
    assert.equal(await fetchPlace(setting.directory), 'other');
    assert.equal(await fetchPlace(original.directory), 'other');
    await assert.rejects(fetchPlace(join(setting.directory, 'holiday.jpg')), { code: 'MODEL_NOT_FOUND' });
  });

  it('releases the directory where it cannot be started or continued', async () => {
    mkdirSync(setting.directory);
    const inTheWay = join(setting.directory, original.manifest.files[0]?.name ?? '');
    mkdirSync(join(inTheWay, 'folder'), { recursive: true });
    await assert.rejects(begun(), { code: 'STORAGE_FAILED' });
    rmSync(inTheWay, { recursive: true });
    await (await begun([0, 1])).close();
    writeFileSync(join(setting.directory, 'fetching-manifest.json'), 'damaged');
    assert.equal(await PartialPack.resume(setting.directory, RUNTIME), null);
    await (await begun()).close();
  });

  it('is not marked as whole before it is', async () => {
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
