import assert from 'node:assert/strict';
import { cp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { readMutatedConfigs, schemesOf, type Json } from './quantized-configs.js';
import { withTemporaryDirectory } from './tiny-checkpoint.js';

const formats = join(packageRoot(), 'test', 'fixtures', 'formats');

const weights = { num_bits: 4, type: 'int', strategy: 'group', group_size: 32, symmetric: true };
const packed = (change: object = {}, more: object = {}): Json => ({
  quant_method: 'compressed-tensors',
  format: 'pack-quantized',
  config_groups: { group_0: { targets: ['Linear'], weights: { ...weights, ...change } } },
  ...more,
});
const floats = (format: string, change: object): Json => ({
  quant_method: 'compressed-tensors',
  format,
  config_groups: {
    group_0: { targets: ['Linear'], weights: { num_bits: 8, type: 'float', symmetric: true, ...change } },
  },
});

const READ: readonly [Json, unknown[]][] = [
  [packed(), [{ kind: 'packed', bits: 4, group: 32, symmetric: true, reordered: false }]],
  [
    packed({ symmetric: false, group_size: 128 }),
    [{ kind: 'packed', bits: 4, group: 128, symmetric: false, reordered: false }],
  ],
  [
    packed({ num_bits: 8, strategy: 'channel', group_size: null }),
    [{ kind: 'packed', bits: 8, group: 0, symmetric: true, reordered: false }],
  ],
  [packed({ actorder: 'group' }), [{ kind: 'packed', bits: 4, group: 32, symmetric: true, reordered: true }]],
  [packed({ actorder: 'weight' }), [{ kind: 'packed', bits: 4, group: 32, symmetric: true, reordered: false }]],
  [floats('float-quantized', { strategy: 'channel' }), [{ kind: 'fp8', scales: 'channel' }]],
  [floats('float-quantized', { strategy: 'tensor' }), [{ kind: 'fp8', scales: 'tensor' }]],
  [floats('float-quantized', { strategy: 'block', block_structure: [128, 128] }), [{ kind: 'fp8', scales: 'block' }]],
  [floats('mxfp4-pack-quantized', { num_bits: 4, strategy: 'group', group_size: 32 }), [{ kind: 'mxfp4' }]],
  [floats('mxfp8-quantized', { strategy: 'group', group_size: 32 }), [{ kind: 'mxfp8' }]],
  [
    floats('nvfp4-pack-quantized', { num_bits: 4, strategy: 'tensor_group', group_size: 16 }),
    [{ kind: 'nvfp4', matrixScale: 'divided' }],
  ],
  [{ quant_method: 'modelopt', quant_algo: 'NVFP4' }, [{ kind: 'nvfp4', matrixScale: 'multiplied' }]],
  [{ quant_method: 'modelopt', quant_algo: 'W4A16_NVFP4' }, [{ kind: 'nvfp4', matrixScale: 'multiplied' }]],
  [{ quant_method: 'modelopt', quant_algo: 'MXFP8', group_size: 32 }, [{ kind: 'mxfp8' }]],
  [{ quant_method: 'modelopt', quantization: { quant_algo: 'MXFP8', exclude_modules: [] } }, [{ kind: 'mxfp8' }]],
  [{ quant_method: 'modelopt', quant_algo: 'FP8' }, [{ kind: 'fp8', scales: 'tensor' }]],
  [{ quant_method: 'fbgemm_fp8' }, [{ kind: 'fp8', scales: 'channel' }]],
  [{ quant_method: 'fp8', weight_block_size: [128, 128] }, [{ kind: 'fp8', scales: 'block' }]],
  [{ quant_method: 'fp8', weight_block_size: null }, [{ kind: 'fp8', scales: 'tensor' }]],
  [
    { quant_method: 'gptq', bits: 4, group_size: 128, sym: true, desc_act: false },
    [{ kind: 'gptq', bits: 4, group: 128, symmetric: true, reordered: false, zeros: 'v1' }],
  ],
  [
    { quant_method: 'gptq', bits: 8, group_size: -1, sym: false, desc_act: true, checkpoint_format: 'gptq_v2' },
    [{ kind: 'gptq', bits: 8, group: 0, symmetric: false, reordered: false, zeros: 'v2' }],
  ],
  [
    { quant_method: 'gptq', bits: 4, group_size: 64, desc_act: true, dynamic: { '-:.*gate.*': {} } },
    [{ kind: 'gptq', bits: 4, group: 64, symmetric: true, reordered: true, zeros: 'v1' }],
  ],
  [{ quant_method: 'awq', bits: 4, group_size: 128, version: 'gemm', zero_point: true }, [{ kind: 'awq', group: 128 }]],
  [
    { quant_method: 'awq', w_bit: 4, q_group_size: 64, zero_point: true, ignore: ['lm_head'] },
    [{ kind: 'awq', group: 64 }],
  ],
];

const REFUSED: readonly [Json, RegExp][] = [
  [packed({ num_bits: 3 }), /num_bits is 3/],
  [packed({ group_size: 48 }), /group_size is 48/],
  [packed({}, { transform_config: { config_groups: { R1: { type: 'hadamard' } } } }), /transform/],
  [packed({}, { sparsity_config: { format: 'sparse-24-bitmask' } }), /sparse-24-bitmask/],
  [floats('float-quantized', { strategy: 'block', block_structure: [64, 64] }), /block_structure is \[64,64\]/],
  [{ quant_method: 'gptq', bits: 2, group_size: 128 }, /bits is 2/],
  [{ quant_method: 'gptq', bits: 4, group_size: 128, checkpoint_format: 'marlin' }, /checkpoint_format is "marlin"/],
  [{ quant_method: 'gptq', bits: 4, group_size: 128, dynamic: { '+:.*mlp.*': { bits: 8 } } }, /dynamic/],
  [{ quant_method: 'awq', bits: 4, group_size: 128, version: 'gemv_fast' }, /version is "gemv_fast"/],
  [{ quant_method: 'awq', bits: 4, group_size: 128, zero_point: false }, /zero_point is false/],
  [{ quant_method: 'modelopt', quant_algo: 'W4A8_AWQ' }, /quant_algo is "W4A8_AWQ"/],
  [{ quant_method: 'fp8', weight_block_size: [64, 128] }, /weight_block_size is \[64,128\]/],
];

describe('the quantization that config.json says', () => {
  for (const [config, schemes] of READ) {
    it(`is read: ${JSON.stringify(config).slice(0, 200)}`, () => {
      assert.deepEqual(schemesOf(config), schemes);
    });
  }

  for (const [config, message] of REFUSED) {
    it(`is refused by its key: ${JSON.stringify(config).slice(0, 200)}`, () => {
      assert.throws(
        () => schemesOf(config),
        (thrown) => thrown instanceof OdmoeError && thrown.code === 'MODEL_UNSUPPORTED' && message.test(thrown.message),
      );
    });
  }

  it('is read or refused in our words, whatever the object holds', () => {
    const accepted = readMutatedConfigs(500, new SeededRandom(35));
    assert.ok(accepted > 10 && accepted < 490, `${accepted} were accepted`);
  });

  it('is read from hf_quant_config.json where config.json says nothing of it', async () => {
    await withTemporaryDirectory(async (directory) => {
      await cp(join(formats, 'dsv3-nvfp4-modelopt'), directory, { recursive: true });
      const path = join(directory, 'config.json');
      const config = JSON.parse(await readFile(path, 'utf8')) as Record<string, Json>;
      await writeFile(path, JSON.stringify({ ...config, quantization_config: null }));
      assert.equal((await openCheckpoint(directory)).shippedFormat, 'nvfp4-multiplied');
      await writeFile(join(directory, 'hf_quant_config.json'), '{"producer": {}}');
      await assert.rejects(openCheckpoint(directory), { code: 'MODEL_CORRUPT' });
      await rm(join(directory, 'hf_quant_config.json'));
      await assert.rejects(openCheckpoint(directory), { code: 'MODEL_UNSUPPORTED' });
    });
  });

  for (const [fixture, name, said] of [
    [
      'qwen3moe-gptq',
      'quantize_config.json',
      { bits: 4, group_size: 64, damp_percent: 0.1, desc_act: false, sym: true },
    ],
    ['qwen3moe-awq', 'quant_config.json', { zero_point: true, q_group_size: 64, w_bit: 4, version: 'GEMM' }],
  ] as const) {
    it(`is read from ${name} where config.json says nothing of it`, async () => {
      await withTemporaryDirectory(async (directory) => {
        await cp(join(formats, fixture), directory, { recursive: true });
        const path = join(directory, 'config.json');
        const config = JSON.parse(await readFile(path, 'utf8')) as Record<string, Json>;
        await writeFile(path, JSON.stringify({ ...config, quantization_config: null }));
        await assert.rejects(openCheckpoint(directory));
        await writeFile(join(directory, name), JSON.stringify(said));
        assert.equal((await openCheckpoint(directory)).shippedFormat, EXPERT_FORMATS[fixture]);
        await writeFile(join(directory, name), '[]');
        await assert.rejects(openCheckpoint(directory), { code: 'MODEL_CORRUPT', message: new RegExp(name) });
      });
    });
  }
});

const EXPERT_FORMATS: Readonly<Record<string, string>> = {
  'dsv3-fp8-e8m0': 'fp8-tile',
  'dsv3-fp8-pow2': 'fp8-tile',
  'dsv3-gptq-descact': 'grouped4-fp16-g128-z',
  'dsv3-int4-asym-g128': 'grouped4-bf16-g128-z',
  'dsv3-int4-g32': 'grouped4-bf16-g32',
  'dsv3-int4-k25': 'grouped4-bf16-g32',
  'dsv3-nvfp4-modelopt': 'nvfp4-multiplied',
  'glm45-fp8-channel': 'fp8-row',
  'minimaxm2-fp8-tensor-bf16': 'fp8-row',
  'minimaxm2-mxfp4-ct': 'mxfp4',
  'minimaxm2-mxfp8-ct': 'mxfp8',
  'qwen3moe-awq': 'grouped4-fp16-g64-z',
  'qwen3moe-fp8-block-bf16': 'fp8-tile',
  'qwen3moe-fp8-block-ct': 'fp8-tile',
  'qwen3moe-fp8-block-f16': 'fp8-tile',
  'qwen3moe-fp8-channel-f32': 'fp8-row',
  'qwen3moe-fp8-tensor': 'fp8-row',
  'qwen3moe-gptq': 'grouped4-fp16-g64',
  'qwen3moe-gptq-asym-v2': 'grouped4-fp16-g64-z',
  'qwen3moe-gptq-int8': 'grouped8-fp16-g64',
  'qwen3moe-int4-actorder': 'mixed',
  'qwen3moe-nvfp4-ct': 'nvfp4-divided',
};

describe('a quantized checkpoint', () => {
  for (const [fixture, quantization] of [
    ['minimaxm2-mxfp8-ct', { quant_method: 'modelopt', quantization: { quant_algo: 'MXFP8' } }],
    ['dsv3-nvfp4-modelopt', { quant_method: 'modelopt', quant_algo: 'W4A16_NVFP4', group_size: 16 }],
    [
      'minimaxm2-mxfp8-ct',
      {
        quant_method: 'modelopt',
        quant_algo: 'MIXED_PRECISION',
        quantized_layers: { a: { quant_algo: 'MXFP8' }, b: { quant_algo: 'FP8' } },
      },
    ],
  ] as const) {
    it(`has the same tensors by ModelOpt's name of the form: ${fixture}, ${JSON.stringify(quantization)}`, async () => {
      await withTemporaryDirectory(async (directory) => {
        await cp(join(formats, fixture), directory, { recursive: true });
        const path = join(directory, 'config.json');
        const config = JSON.parse(await readFile(path, 'utf8')) as Record<string, Json>;
        const sourcesOf = async () =>
          (await openCheckpoint(directory)).tensors.map(({ name, source }) => ({ name, source }));
        const before = await sourcesOf();
        await writeFile(path, JSON.stringify({ ...config, quantization_config: quantization }));
        assert.deepEqual(await sourcesOf(), before);
      });
    });
  }

  for (const [fixture, format] of Object.entries(EXPERT_FORMATS)) {
    it(`keeps the codes of its experts, and its router as values: ${fixture}`, async () => {
      const checkpoint = await openCheckpoint(join(formats, fixture));
      assert.equal(checkpoint.shippedFormat, format);
      const routers = checkpoint.tensors.filter(({ place }) => place.kind === 'dense' && place.role === 'router');
      assert.ok(routers.length > 0);
      for (const { source } of routers) assert.match(source.split, /^none-/);
    });
  }
});
