import assert from 'node:assert/strict';
import { limitOf, measureLoadStages, oneFile } from '../../../bench/load/measure-load.js';
import { withSyntheticPack } from '../../../bench/load/index.js';
import { chooseReadDepth, measureReadDepth, USUAL_READ_DEPTH } from '../../../engine/planning/measure-read-depth.js';
import { measureQueuedReads, openDevice } from '../../../native/index.js';
import { codecSetting } from '../../../packs/format/pack-codec.js';
import type { Pack } from '../../../packs/format/open-pack.js';

const TINY = { layers: 1, experts: 2, activated: 1, hidden: 64, intermediate: 96, shards: 2 };

function withTinyPack<Result>(codec: 'raw' | 'huffman', use: (pack: Pack) => Promise<Result>): Promise<Result> {
  const setting = { ...TINY, codec: codecSetting(codec, null) };
  return withSyntheticPack(setting, new AbortController().signal, use);
}

describe('odmoe bench load', () => {
  it('compares each stage with its limit', async () => {
    const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 });
    try {
      const stages = await withTinyPack('huffman', (pack) =>
        measureLoadStages(
          device,
          [{ codec: 'huffman', pack }],
          { rounds: 1, milliseconds: 1, depth: 4, decompressionThreads: 1 },
          () => undefined,
        ),
      );
      const names = stages.map(({ stage }) => stage);
      assert.equal(new Set(names).size, names.length);
      for (const wanted of [
        'memcpy, all threads',
        'reads of huffman, direct, one after another',
        'decoding huffman, 1 thread',
      ]) {
        assert.ok(names.includes(wanted), wanted);
      }
      assert.ok(names.includes('loads of huffman, cached, 4 reads at a time'));
      assert.ok(names.includes('loads of huffman, held in host memory'));
      for (const { stage, bytesPerS, limit } of stages) {
        assert.ok(bytesPerS > 0, stage);
        if (limit === null) continue;
        const of = stages.find((other) => other.stage === limit.stage)?.bytesPerS ?? 0;
        assert.equal(limit.share, bytesPerS / of, 'of one round');
        if (stage.includes('huffman, direct')) assert.match(limit.stage, /^reads of huffman, direct/);
      }
    } finally {
      device.dispose();
    }
  }).timeout(60_000);

  it('computes shares within a round, however the storage changes between rounds', () => {
    const rounds = [
      { load: 80, one: 100, many: 90 },
      { load: 9, one: 9, many: 10 },
      { load: 300, one: 500, many: 400 },
    ].map((round) => new Map(Object.entries(round)));
    assert.deepEqual(limitOf('load', ['one', 'many'], rounds), { stage: 'one', share: 0.8 });
    assert.deepEqual(limitOf('load', ['one', 'many'], rounds.slice(1)), { stage: 'one', share: 0.75 });
    assert.equal(limitOf('one', [], rounds), null);
  });

  it('loads the experts of the file that raw reads use', async () => {
    await withSyntheticPack(
      { ...TINY, layers: 2, codec: codecSetting('raw', null) },
      new AbortController().signal,
      (pack) => {
        const { path, bytes, experts } = oneFile(pack);
        const files = new Set([0, 1].map((layer) => pack.expert(layer, 0).gate.chunks[0]?.path));
        assert.equal(experts.length, files.size === 1 ? 4 : 2);
        for (const { layer, expert } of experts) {
          for (const chunk of pack.expert(layer, expert).down.chunks) {
            assert.equal(chunk.path, path);
            assert.ok(chunk.offsetBytes + chunk.storedBytes <= bytes);
          }
        }
        return Promise.resolve();
      },
    );
  });
});

describe('the measured depth of reads', () => {
  it('is the smallest that is about as fast as any', () => {
    const speeds = (...rates: number[]): { depth: number; bytesPerS: number }[] =>
      rates.map((bytesPerS, index) => ({ depth: 2 ** index, bytesPerS }));
    assert.equal(chooseReadDepth(speeds(100)), 1);
    assert.equal(chooseReadDepth(speeds(100, 99, 101, 98)), 1);
    assert.equal(chooseReadDepth(speeds(50, 96, 100, 99)), 2);
    assert.equal(chooseReadDepth(speeds(10, 20, 40, 80, 160)), 16);
  });

  it('is the default where there is too little data to measure', async () => {
    const chosen = await withTinyPack('raw', (pack) =>
      measureReadDepth(pack, false, () => Promise.reject(new Error('nothing is to be read'))),
    );
    assert.equal(chosen.depth, USUAL_READ_DEPTH);
    assert.equal(chosen.unmeasured, 'the model is small');
  });

  it("is measured with the loader's reads", async () => {
    await withTinyPack('raw', async (pack) => {
      const path = pack.expert(0, 0).gate.chunks[0]?.path ?? '';
      for (const way of ['auto', 'threads', 'io_uring'] as const) {
        for (const direct of [false, true]) {
          const speed = await measureQueuedReads(path, 8192, { way, depth: 3, direct }, 2);
          assert.ok(speed.bytesPerS > 0 && speed.readBytes >= 8192);
          if (way === 'threads') assert.equal(speed.way, 'threads');
          if (way === 'io_uring') assert.equal(speed.way === 'io_uring', speed.ringRefusal === '');
        }
      }
      await assert.rejects(measureQueuedReads(path, 8192, { way: 'auto', depth: 17, direct: false }, 2), {
        code: 'INTERNAL',
      });
      await assert.rejects(measureQueuedReads(`${path}.none`, 8192, { way: 'auto', depth: 1, direct: false }, 2), {
        code: 'STORAGE_FAILED',
      });
    });
  });
});
