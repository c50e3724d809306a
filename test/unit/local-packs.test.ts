import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type LocalPack, localPacks, packsNamed } from '../../cli/models/local-packs.js';
import { existingDirectory, packsOf } from '../../cli/models/pack-places.js';
import { estimateLines, gpuBytes, obstacle, type RunEstimate } from '../../cli/models/run-estimate.js';
import type { CudaStatus } from '../../native/index.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { withCheckpoint, pack } from './tiny-pack.js';
import { withTemporaryDirectory } from './tiny-checkpoint.js';

describe('the packs on this machine', () => {
  it('are whole, unfinished or damaged; other directories are none', async () => {
    await withCheckpoint(async (checkpoint, output) => {
      const packs = join(output, '..', 'packs');
      const whole = join(packs, 'owner--model--0123456789ab');
      const { digest } = await pack(checkpoint, whole, { name: 'owner/model' });
      mkdirSync(join(packs, 'owner--model--ffffffffffff.pulling'));
      writeFileSync(join(packs, 'owner--model--ffffffffffff.pulling', 'a.part'), Buffer.alloc(10_000, 1));
      mkdirSync(join(packs, 'other'));
      await pack(checkpoint, join(packs, 'torn'));
      writeFileSync(join(packs, 'torn', 'dense.safetensors'), 'short');
      const found = await localPacks(packs);
      assert.deepEqual(
        found.map(({ entry, name, state }) => [entry, name, state]),
        [
          ['owner--model--0123456789ab', 'owner/model', 'whole'],
          ['owner--model--ffffffffffff', null, 'unfinished'],
          ['torn', null, 'damaged'],
        ],
      );
      assert.equal(found[0]?.digest, digest);
      assert.ok((found[1]?.diskBytes ?? 0) >= 10_000);
      assert.match(found[2]?.damage ?? '', /dense.safetensors/);
      assert.deepEqual(await packsOf(packs, { id: 'owner/model' }), [whole]);
      assert.deepEqual(await packsOf(packs, { id: 'owner/mod' }), []);
    });
  });

  it('are none where the directory is not there', async () => {
    await withTemporaryDirectory(async (directory) => {
      assert.deepEqual(await localPacks(join(directory, 'none')), []);
      assert.equal(await existingDirectory(join(directory, 'none', 'at', 'all')), directory);
    });
  });

  it('are named by model, directory or the begin of a digest', () => {
    const base = { directory: '', diskBytes: 0, state: 'whole', damage: null } as const;
    const one: LocalPack = {
      ...base,
      entry: 'owner--model--0123456789ab',
      name: 'owner/model',
      digest: 'aa'.repeat(32),
    };
    const two: LocalPack = {
      ...base,
      entry: 'owner--model--ba9876543210',
      name: null,
      digest: null,
      state: 'unfinished',
    };
    const three: LocalPack = { ...base, entry: 'aabbccddeeff0011', name: 'owner/model', digest: 'bb'.repeat(32) };
    const all = [one, two, three];
    assert.deepEqual(packsNamed(all, 'owner/model'), all);
    assert.deepEqual(packsNamed(all, two.entry), [two]);
    assert.deepEqual(packsNamed(all, 'aaaaaaaa'), [one]);
    assert.deepEqual(packsNamed(all, 'aaaa'), []);
    assert.deepEqual(packsNamed(all, 'owner/mod'), []);
  });
});

describe('whether this box can run a model', () => {
  const estimate: RunEstimate = {
    machines: { workers: 2, hasShadow: false, source: 'cluster', boxes: [] },
    neededBytes: 1000,
    memoryBytes: 1000,
    gpuBytes: null,
    expertBytes: 10,
    runsExperts: true,
    diskNeededBytes: 1000,
    diskFreeBytes: 1000,
    tokensPerS: 3,
    profile: 'some',
  };

  it('is said with the figures', () => {
    assert.equal(obstacle('a/b', estimate), null);
    assert.equal(obstacle('a/b', { ...estimate, diskFreeBytes: null }), null);
    const memory = obstacle('a/b', { ...estimate, neededBytes: 1001 });
    assert.equal(memory?.code, 'DEVICE_OUT_OF_MEMORY');
    assert.match(memory.message, /^a\/b: main needs .* of memory/);
    const disk = obstacle('a/b', { ...estimate, diskNeededBytes: 1001 });
    assert.equal(disk?.code, 'STORAGE_FULL');
    assert.match(disk.message, /^a\/b: .* of disk are needed/);
  });

  it('counts the memory of the GPU that main is to use, and of workers where this box runs no experts', () => {
    const gpu = obstacle('a/b', { ...estimate, gpuBytes: 999 });
    assert.equal(gpu?.code, 'DEVICE_OUT_OF_MEMORY');
    assert.match(gpu.message, /its GPU has 999 .*leave --device out/);
    assert.equal(obstacle('a/b', { ...estimate, gpuBytes: 1000 }), null);
    const box = (memoryBytes: number | null) => ({ count: 1, linkBytesPerS: null, memoryBytes });
    const withBoxes = (...sizes: (number | null)[]): RunEstimate => ({
      ...estimate,
      runsExperts: false,
      machines: { workers: sizes.length, hasShadow: false, source: 'measured', boxes: sizes.map(box) },
    });
    assert.match(obstacle('a/b', withBoxes(9, 9))?.message ?? '', /an expert needs 10 .*no worker has so much memory/);
    for (const able of [withBoxes(9, 10), withBoxes(9, null), { ...withBoxes(9, 9), runsExperts: true }, withBoxes()])
      assert.equal(obstacle('a/b', able), null);
    assert.match(
      estimateLines(withBoxes(9, 10)).join('\n'),
      /workers: 1 of 2 have not the 10 .* that one expert needs/,
    );
    assert.doesNotMatch(estimateLines(withBoxes(10, null)).join('\n'), /workers: \d+ of/);
  });

  it('looks at a GPU that is named, has memory of its own and no budget', () => {
    const gpuOf = (integrated: boolean) => ({ devices: [{ index: 0, usable: true, integrated, memoryBytes: 77 }] });
    const ask = (backend: string, memoryBudgetBytes: number, integrated = false): number | null => {
      const settings = { device: { backend, device: null, memoryBudgetBytes }, emulation: null };
      return gpuBytes(settings as unknown as NodeSettings, () => gpuOf(integrated) as unknown as CudaStatus);
    };
    assert.equal(ask('cuda', 0), 77);
    assert.deepEqual([ask('auto', 0), ask('cuda', 5), ask('cuda', 0, true)], [null, null, null]);
  });
});
