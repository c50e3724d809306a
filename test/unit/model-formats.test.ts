import assert from 'node:assert/strict';
import { resolve } from 'node:path';
import fc from 'fast-check';
import { profileFile } from '../../cli/client/simulation-flags.js';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { loadModelProfile, modelProfileNames } from '../../engine/emulation/load-model-profile.js';
import { mixedFormat, shippedFormat } from '../../engine/emulation/model-format.js';
import { nodeTimes } from '../../engine/emulation/node-times.js';
import { shippedStorage } from '../../engine/emulation/device-profile.js';
import { WEIGHT_MIXES, weightMix, type WeightMix } from '../../engine/emulation/weight-mixes.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { modelBytes } from '../../packs/packing/model-bytes.js';
import { DEFAULT_SET_UP } from '../../simulator/simulate/cluster-set-up.js';
import { diskNeeds } from '../../simulator/plan/disk-needs.js';
import { openPlannedModel, overrideProfile } from '../../simulator/plan/planned-profile.js';

const HOME = loadDeviceProfile(profileFile('orin-nx-rtx3090'));
const NO_CHANGE = { model: null, modelProfile: null, format: null, networkBytesPerS: null, roundTripMs: null };
const SET_UP = { workers: 3, placement: DEFAULT_SET_UP.placement };

const near = (actual: number, expected: number, share = 0.001): void => {
  assert.ok(Math.abs(actual / expected - 1) < share, `${actual} is not ${expected}`);
};

function mix(name: string): WeightMix {
  const found = weightMix(name);
  assert.ok(found, name);
  return found;
}

function packBytes(modelProfile: string, format: string): number {
  const { model } = overrideProfile(HOME, { ...NO_CHANGE, modelProfile, format });
  return diskNeeds(model, shippedStorage(model), SET_UP).wholePackBytes;
}

describe('formats of whole models', () => {
  it('have the bytes of the files that are published', () => {
    // Qwen/Qwen3-30B-A3B-GGUF: Q4_K_M has 18,556,685,824 bytes, with 6 MB of keys and vectors; others to four digits (bartowski's list).
    near(packBytes('qwen3-30b-a3b', 'Q4_K_M'), 18_556_685_824);
    near(packBytes('qwen3-30b-a3b', 'Q5_K_M'), 21.74e9, 0.003);
    near(packBytes('qwen3-30b-a3b', 'Q6_K'), 25.1e9);
    near(packBytes('qwen3-30b-a3b', 'Q8_0'), 32.48e9);
    near(packBytes('qwen3-30b-a3b', 'BF16'), 61.1e9);
  });

  it('give the embedding the format of the head where they are one, and eight experts other ones in attention', () => {
    const place = { layer: 5, layers: 32, experts: 128, columns: 4096, tiedEmbeddings: false };
    const { formatOf } = mix('Q4_K_M');
    assert.equal(formatOf({ ...place, matrix: 'embedding' }), 'q4_k');
    assert.equal(formatOf({ ...place, matrix: 'embedding', tiedEmbeddings: true }), 'q6_k');
    assert.equal(formatOf({ ...place, matrix: 'lmHead' }), 'q6_k');
    assert.deepEqual(
      (['key', 'value', 'mixerOutput'] as const).map((matrix) => formatOf({ ...place, matrix, experts: 8 })),
      ['q8_0', 'q8_0', 'q5_k'],
    );
    assert.equal(formatOf({ ...place, matrix: 'router' }), 'none-fp32');
    const more = Array.from({ length: 32 }, (_, layer) => formatOf({ ...place, matrix: 'down', layer }) === 'q6_k');
    assert.deepEqual(
      more.flatMap((isMore, layer) => (isMore ? [layer] : [])),
      [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31],
    );
  });

  it('take another format for rows that are no whole blocks', () => {
    const place = { matrix: 'gate', layer: 9, layers: 32, experts: 32, tiedEmbeddings: false } as const;
    const formats = [2816, 2880, 2890].map((columns) => mix('Q4_K_M').formatOf({ ...place, columns }));
    assert.deepEqual(formats, ['q4_k', 'q5_0', 'none-fp16']);
    assert.equal(mix('Q6_K').formatOf({ ...place, columns: 2880 }), 'q8_0');
  });

  it('are known by mixes, block formats and two of these; nothing else is', () => {
    assert.deepEqual(WEIGHT_MIXES.slice().sort(), [
      'BF16',
      'FP8',
      'INT4',
      'MXFP4',
      'NVFP4',
      'Q4_K_M',
      'Q5_K_M',
      'Q6_K',
      'Q8_0',
    ]);
    for (const name of ['q4_k_m', 'iq4_xs', 'fp8-tile', 'grouped4-fp16-g128-z', 'INT4+q8_0']) mix(name);
    for (const name of ['', '+', 'Q4_K_X', 'int4+', '+q4_k', 'q4_k+q8_0+q8_0', 'grouped4-bf16-g33', 'constructor']) {
      assert.equal(weightMix(name), null, name);
    }
    const place = { layer: 0, layers: 1, experts: 4, columns: 256, tiedEmbeddings: false };
    const { formatOf } = mix('INT4+q8_0');
    assert.equal(formatOf({ ...place, matrix: 'down' }), 'grouped4-bf16-g32');
    assert.equal(formatOf({ ...place, matrix: 'query' }), 'q8_0');
    assert.throws(
      () => overrideProfile(HOME, { ...NO_CHANGE, format: 'Q4_K_X' }),
      /no format Q4_K_X; there are .*Q4_K_M.*q4_k/,
    );
  });

  it('never hold a weight in more than the FP32 of its device, nor in less than two bits', () => {
    const models = fc.constantFrom(...modelProfileNames());
    fc.assert(
      fc.property(models, fc.constantFrom(...WEIGHT_MIXES), fc.constantFrom(...WEIGHT_MIXES), (name, experts, rest) => {
        const { shape, tiedEmbeddings } = loadModelProfile(name);
        const format = mixedFormat(mix(`${experts}+${rest}`), { shape, tiedEmbeddings }, 2);
        const { expertBytes, denseBytes, embeddingBytes, headBytes } = format;
        for (const bytes of [expertBytes, denseBytes, embeddingBytes, headBytes]) {
          assert.ok(bytes >= 0.25 && bytes <= 4, `${name} ${format.name}: ${bytes}`);
        }
        assert.equal(expertBytes, mixedFormat(mix(experts), { shape, tiedEmbeddings }, 2).expertBytes);
      }),
      { numRuns: 30 },
    );
  });

  it('shorten loads, executions and main’s passes by their bytes', () => {
    const plain = nodeTimes(HOME, 'worker', 'bf16');
    const q4 = overrideProfile(HOME, { ...NO_CHANGE, format: 'Q4_K_M' });
    const worker = nodeTimes(q4, 'worker', shippedStorage(q4.model));
    near(worker.expertBytes, 2_858_000, 0.01);
    near(worker.expert.weightsMs / plain.expert.weightsMs, worker.expertBytes / plain.expertBytes);
    assert.equal(worker.recoverMs, 0);
    const [main, before] = [nodeTimes(q4, 'main', 'bf16'), nodeTimes(HOME, 'main', 'bf16')];
    near(main.lmHead.weightsMs / before.lmHead.weightsMs, 210 / 256 / 2);
    assert.ok(main.denseLayerBytes < before.denseLayerBytes / 3);
    assert.ok(main.outerBytes < before.outerBytes);
  });

  it('are INT4 for Kimi-K2-Thinking, as it is published', () => {
    const { format } = loadModelProfile('kimi-k2-thinking');
    assert.equal(format?.name, 'INT4');
    assert.deepEqual([format.expertBytes, format.headBytes, format.denseBytes], [0.5625, 2, 2]);
    // The files of moonshotai/Kimi-K2-Thinking have 594 GB.
    near(packBytes('kimi-k2-thinking', 'INT4'), 594e9, 0.01);
  });
});

describe('a model on disk', () => {
  it('is planned with the bytes of its own formats', async () => {
    const path = resolve('test/fixtures/gptoss-mxfp4');
    const model = await openPlannedModel(path);
    const planned = overrideProfile(HOME, { ...NO_CHANGE, model }).model;
    assert.equal(planned.format?.name, 'mxfp4');
    assert.equal(planned.format.expertBytes, 17 / 32);
    assert.equal(planned.format.denseBytes, HOME.model.weightBytes);
  });

  it('has no format where nothing in it is quantized', async () => {
    const source = await openModelSource('models/demo');
    assert.equal(shippedFormat(source, 2), null);
    const { model } = overrideProfile(HOME, { ...NO_CHANGE, model: await openPlannedModel('models/demo') });
    near(diskNeeds(model, shippedStorage(model), SET_UP).wholePackBytes, modelBytes(source), 0.02);
  });
});
