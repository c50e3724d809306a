import assert from 'node:assert/strict';
import fc from 'fast-check';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { codecChoiceLines, codecChoiceObject } from '../../cli/output/codec-choice-report.js';
import { chooseCodec, type CodecMeasurement, usualDecompressionThreads } from '../../packs/packing/codec-choice.js';
import { earlierCodec } from '../../packs/packing/earlier-codec.js';
import {
  codesRemark,
  MEASURED_SETTINGS,
  measureAndChoose,
  type MeasuredChoice,
  measuredSettings,
  type MeasuringTools,
  shippedRatio,
  spread,
} from '../../packs/packing/measure-codecs.js';
import { NATIVE_MEASURING_TOOLS } from '../../packs/packing/native-tools.js';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { layerExpertBytes } from '../../packs/packing/model-bytes.js';
import { openPack } from '../../packs/format/open-pack.js';
import { codecSetting } from '../../packs/format/pack-codec.js';
import { MEDIUM_CONFIG, weightTensors } from './medium-checkpoint.js';
import { failingAt, pack, refusal, withCheckpoint } from './tiny-pack.js';

const MB = 1e6;
const GB = 1e9;
const measured = (codec: string, ratio: number, encodeGbS: number, decodeGbS: number): CodecMeasurement => ({
  ...codecSetting(codec, null),
  ratio,
  encodeBytesPerS: encodeGbS * GB,
  decodeBytesPerS: decodeGbS * GB,
});
const RAW = measured('raw', 1, 100, 20);
const FIXED4 = measured('fixed4', 0.75, 2, 12);
const HUFFMAN = measured('huffman', 0.667, 1, 2);
const ZSTD = measured('zstd', 0.662, 0.01, 1.5);
const ALL = [RAW, FIXED4, HUFFMAN, ZSTD];

describe('choosing a codec', () => {
  const choose = (storageGbS: number, threads: number): string =>
    chooseCodec(ALL, 100 * MB, { storageBytesPerS: storageGbS * GB, decompressionThreads: threads }).chosen.codec;

  it('takes the codec with the fastest reads on slow storage, and among equals the most portable one', () => {
    assert.equal(choose(0.5, 2), 'huffman');
    const { reason } = chooseCodec(ALL, MB, { storageBytesPerS: 0.5 * GB, decompressionThreads: 2 });
    assert.match(
      reason,
      /^of 2 that load about equally fast.* it gives the same pack on every machine: .*as storage gives it$/,
    );
    const libraries = chooseCodec([ZSTD, measured('zstd', 0.66, 0.02, 1.5)], MB, {
      storageBytesPerS: 0.5 * GB,
      decompressionThreads: 2,
    });
    assert.equal(libraries.chosen.ratio, 0.66);
    assert.match(libraries.reason, /it packs fastest/);
  });

  it('takes a codec with fast decompression where the cores are the bottleneck', () => {
    assert.equal(choose(5, 1), 'fixed4');
    assert.equal(choose(100, 4), 'raw');
    const { reason } = chooseCodec([HUFFMAN, ZSTD], MB, { storageBytesPerS: 50 * GB, decompressionThreads: 1 });
    assert.equal(reason, 'fastest load: an expert is loaded as fast as the cores decompress it');
  });

  it('estimates a load as the longer of reading and decompressing', () => {
    const { estimates } = chooseCodec([HUFFMAN], 100 * MB, { storageBytesPerS: GB, decompressionThreads: 4 });
    assert.deepEqual(estimates, [{ ...HUFFMAN, readMs: 66.7, decompressMs: 12.5, loadMs: 66.7 }]);
  });

  it('never takes a codec that loads 3 % later than another, or among equals is 2 points larger', () => {
    const figure = fc.double({ min: 0.01, max: 100, noNaN: true });
    const measurement = fc.record({
      codec: fc.constant('huffman' as const),
      level: fc.constant(null),
      ratio: fc.double({ min: 0.5, max: 1, noNaN: true }),
      encodeBytesPerS: figure,
      decodeBytesPerS: figure,
    });
    fc.assert(
      fc.property(fc.array(measurement, { minLength: 1, maxLength: 8 }), figure, fc.nat(7), (all, storage, threads) => {
        const machine = { storageBytesPerS: storage, decompressionThreads: threads + 1 };
        const { chosen, estimates } = chooseCodec(all, 1000, machine);
        const fastest = Math.min(...estimates.map((estimate) => estimate.loadMs));
        assert.ok(chosen.loadMs <= fastest * 1.03);
        const smallest = Math.min(
          ...estimates.filter((estimate) => estimate.loadMs <= fastest * 1.03).map((estimate) => estimate.ratio),
        );
        assert.ok(chosen.ratio <= smallest + 0.02);
      }),
    );
  });

  it('assumes as many threads as a loader takes by default', () => {
    assert.deepEqual([1, 2, 3, 4, 16, 64].map(usualDecompressionThreads), [1, 1, 1, 2, 8, 8]);
  });
});

describe('measuring codecs on a checkpoint', () => {
  it('samples matrices from several layers, and different ones of an expert', () => {
    const places = [...Array(768).keys()];
    assert.deepEqual(spread(places, 4), [96, 289, 482, 675]);
    assert.deepEqual(spread([7], 4), [7]);
    assert.deepEqual(spread([], 4), []);
  });

  it('counts the bytes of further planes', () => {
    assert.equal(shippedRatio('bf16', 'huffman', 0.67), 0.67);
    assert.equal(shippedRatio('fp16', 'huffman', 0.67), (1.34 + 0.375) / 2);
    assert.equal(shippedRatio('fp32', 'huffman', 0.67), (1.34 + 2) / 4);
    assert.equal(shippedRatio('fp16', 'raw', 1), 1);
  });

  for (const dtype of ['BF16', 'F16', 'F32'] as const) {
    it(`gives the ratio that packing reaches (${dtype})`, async () => {
      const config = { ...MEDIUM_CONFIG, hidden_size: 256, intermediate_size: 192, num_hidden_layers: 1 };
      await withCheckpoint(
        async (directory, output) => {
          const checkpoint = await openCheckpoint(directory);
          const choice = await measureAndChoose(checkpoint, NATIVE_MEASURING_TOOLS, null);
          assert.deepEqual(
            choice.estimates.map(({ codec, level }) => ({ codec, level })),
            MEASURED_SETTINGS,
          );
          const estimate = choice.estimates.find(({ codec }) => codec === 'huffman');
          const shipped = layerExpertBytes(checkpoint, 0);
          assert.equal(choice.expertBytes, shipped / 2);
          await pack(directory, output, { codec: codecSetting('huffman', null), shards: 1 });
          const stored = await storedExpertBytes(output);
          assert.ok(
            Math.abs((estimate?.ratio ?? 0) - stored / shipped) < 0.01,
            `${estimate?.ratio} ${stored / shipped}`,
          );
        },
        weightTensors(dtype, config),
        config,
      );
    });
  }

  it('measures codes as exponents are, with the codecs that make a difference for them', async () => {
    const tools: MeasuringTools = {
      ...NATIVE_MEASURING_TOOLS,
      measureReads: async () => ({ bytesPerS: GB, readBytes: MB, direct: true }),
    };
    const chosenFor = async (fixture: string): Promise<MeasuredChoice> =>
      measureAndChoose(await openCheckpoint(join(packageRoot(), 'test', 'fixtures', fixture)), tools, null);
    const fp8 = await chosenFor('deepseekv3-fp8');
    const ratioOf = (codec: string): number => fp8.estimates.find((estimate) => estimate.codec === codec)?.ratio ?? 0;
    assert.deepEqual([...new Set(fp8.estimates.map(({ codec }) => codec))], ['raw', 'zstd', 'huffman']);
    assert.equal(ratioOf('raw'), 1);
    assert.ok(ratioOf('huffman') < 0.95 && ratioOf('huffman') > 0.7, `${ratioOf('huffman')}`);
    const mxfp4 = await chosenFor('gptoss-mxfp4');
    assert.deepEqual([...new Set(mxfp4.estimates.map(({ codec }) => codec))], ['raw', 'zstd']);
    const settings = measuredSettings(['q4_k', 'q6_k']);
    assert.deepEqual([...new Set(settings.map(({ codec }) => codec))], ['raw', 'zstd']);
  });

  it('says that codes of four bits have nothing to give', () => {
    const [raw, huffman] = [codecSetting('raw', null), codecSetting('huffman', null)];
    assert.equal(codesRemark(['q4_k'], raw), '; the codes of q4_k have almost nothing to give');
    assert.equal(codesRemark(['q4_k', 'q6_k'], raw), '; the codes of q4_k and q6_k have almost nothing to give');
    assert.equal(codesRemark(['q4_k', 'fp8'], raw), '; only scales are coded');
    const silent = [codesRemark(['fp8'], huffman), codesRemark(['bf16'], raw), codesRemark(['q4_k', 'bf16'], raw)];
    assert.deepEqual(silent, ['', '', '']);
  });

  it('reports the measurements, the choice and the reason', async () => {
    await withCheckpoint(async (directory) => {
      const tools: MeasuringTools = {
        ...NATIVE_MEASURING_TOOLS,
        measureCodec: async (codec) => ({
          ratio: codec === 'fixed4' ? 0.75 : 0.9,
          encodeBytesPerS: GB,
          decodeBytesPerS: 4 * GB,
          memcpyBytesPerS: 8 * GB,
        }),
        measureReads: async () => ({ bytesPerS: 2 * GB, readBytes: MB, direct: false }),
      };
      const choice = await measureAndChoose(await openCheckpoint(directory), tools, null);
      const lines = codecChoiceLines(choice);
      assert.match(lines.join('\n'), /from storage at 2\.00 GB\/s/);
      assert.match(lines.join('\n'), /fixed4 +75\.0 % +1\.00 GB\/s +4\.00 GB\/s/);
      assert.match(lines.join('\n'), /speed of storage may be that of the page cache/);
      assert.match(lines.at(-1) ?? '', /^chose fixed4: fastest load/);
      const object = codecChoiceObject(choice);
      assert.deepEqual([object['codec'], object['level'], object['storageDirect']], ['fixed4', null, false]);
    });
  });

  it('stops when it is interrupted', async () => {
    await withCheckpoint(async (directory) => {
      const controller = new AbortController();
      const tools: MeasuringTools = {
        ...NATIVE_MEASURING_TOOLS,
        measureCodec: async (...call) => {
          controller.abort();
          return NATIVE_MEASURING_TOOLS.measureCodec(...call);
        },
      };
      const choosing = measureAndChoose(await openCheckpoint(directory), tools, controller.signal);
      await assert.rejects(choosing, refusal('CANCELLED', /interrupted/));
    });
  });
});

describe('the codec of an existing pack', () => {
  it('is taken from a whole pack and from an unfinished one of the same checkpoint', async () => {
    await withCheckpoint(async (directory, output) => {
      const checkpoint = await openCheckpoint(directory);
      assert.equal(await earlierCodec(checkpoint, output), null);
      const codec = codecSetting('lz4hc', 4);
      await assert.rejects(pack(directory, output, { codec, openFile: await failingAt(0.5, directory) }));
      assert.deepEqual(await earlierCodec(checkpoint, output), codec);
      await pack(directory, output, { codec });
      assert.deepEqual(await earlierCodec(checkpoint, output), codec);
    });
  });

  it('is unknown where another checkpoint was begun, or a pack cannot be read', async () => {
    await withCheckpoint(async (directory, output) => {
      await assert.rejects(pack(directory, output, { openFile: await failingAt(0.5, directory) }));
      const checkpoint = await openCheckpoint(directory);
      const changed = checkpoint.files.map((file) => ({ ...file, modifiedMs: file.modifiedMs + 1 }));
      assert.equal(await earlierCodec({ ...checkpoint, files: changed }, output), null);
      await mkdir(`${output}-2`);
      await writeFile(`${output}-2/manifest.json`, '{"format": "odmoe-pack", "format_version": 1}');
      assert.equal(await earlierCodec(checkpoint, `${output}-2`), null);
      await assert.rejects(pack(directory, `${output}-2`), refusal('USAGE', /this odmoe cannot read; remove it/));
    });
  });
});

async function storedExpertBytes(directory: string): Promise<number> {
  const { manifest } = await openPack(directory);
  const matrices = manifest.experts.flatMap(({ gate, up, down }) => [gate, up, down]);
  return matrices.flatMap((matrix) => matrix.chunks).reduce((sum, chunk) => sum + chunk.stored_bytes, 0);
}
