import assert from 'node:assert/strict';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { type Config, configOfFixture, REWRITTEN, separateExperts, tensorsOfFixture } from './rewritten-experts.js';
import { type TinyTensor, withTemporaryDirectory, writeTinyCheckpoint } from './tiny-checkpoint.js';

type Rewrite = (tensors: readonly TinyTensor[]) => TinyTensor[];

async function open(fixture: string, rewrite: Rewrite, change: Config = {}): Promise<readonly string[]> {
  const tensors = rewrite(await tensorsOfFixture(fixture));
  const found: string[] = [];
  await withTemporaryDirectory(async (directory) => {
    await writeTinyCheckpoint(directory, tensors, { config: { ...configOfFixture(fixture), ...change } });
    found.push(...(await openCheckpoint(directory)).leftOut);
  });
  return found;
}

/** The error must name the unreadable form, and must not advise the user to download the checkpoint again. */
async function refuses(fixture: string, rewrite: Rewrite, message: RegExp, change: Config = {}): Promise<void> {
  await fails('MODEL_UNSUPPORTED', fixture, rewrite, message, change);
}

/** The error must say that config.json and the tensors do not belong together. */
async function contradicts(fixture: string, rewrite: Rewrite, message: RegExp, change: Config = {}): Promise<void> {
  await fails('MODEL_CORRUPT', fixture, rewrite, message, change);
}

async function fails(
  code: ErrorCode,
  fixture: string,
  rewrite: Rewrite,
  message: RegExp,
  change: Config,
): Promise<void> {
  await assert.rejects(open(fixture, rewrite, change), (thrown: unknown) => {
    assert.ok(thrown instanceof OdmoeError, String(thrown));
    assert.equal(thrown.code, code, thrown.message);
    assert.match(thrown.message, message);
    assert.doesNotMatch(thrown.message, /download/);
    return true;
  });
}

/** Every matrix of the experts in another form: tensors with these ends of names in its place. */
function quantized(parts: Readonly<Record<string, { dtype: string; shape: readonly number[] }>>): Rewrite {
  const bytes: Readonly<Record<string, number>> = { U8: 1, I8: 1, F8_E4M3: 1, I32: 4, F32: 4, BF16: 2, F16: 2, U32: 4 };
  return (tensors) =>
    tensors.flatMap((tensor) => {
      const name = /^(.*\.experts\.\d+\.\w+)\.weight$/.exec(tensor.name)?.[1];
      if (name === undefined) return [tensor];
      return Object.entries(parts).map(([part, { dtype, shape }]) => {
        const sizeBytes = shape.reduce((product, size) => product * size, bytes[dtype] ?? 0);
        return { name: `${name}.${part}`, dtype, shape, data: new Uint8Array(sizeBytes) };
      });
    });
}

const [I32, F16, U8, F8, F32, I8] = (['I32', 'F16', 'U8', 'F8_E4M3', 'F32', 'I8'] as const).map(
  (dtype) =>
    (...shape: number[]) => ({ dtype, shape }),
);
assert.ok(I32 && F16 && U8 && F8 && F32 && I8);

const FORMS: readonly { form: string; message: RegExp; rewrite: Rewrite }[] = [
  {
    form: 'GPTQ',
    message: /GPTQ/,
    rewrite: quantized({ qweight: I32(8, 96), qzeros: I32(1, 12), scales: F16(1, 96), g_idx: I32(64) }),
  },
  { form: 'AWQ', message: /AWQ/, rewrite: quantized({ qweight: I32(64, 12), qzeros: I32(1, 12), scales: F16(1, 96) }) },
  {
    form: 'bitsandbytes, 4 bits',
    message: /bitsandbytes/,
    rewrite: quantized({
      weight: U8(3072, 1),
      'weight.absmax': F32(96),
      'weight.quant_state.bitsandbytes__nf4': U8(8),
    }),
  },
  { form: 'bitsandbytes, 8 bits', message: /bitsandbytes/, rewrite: quantized({ weight: I8(96, 64), SCB: F32(96) }) },
  {
    form: 'compressed-tensors, packed',
    message: /compressed-tensors/,
    rewrite: quantized({ weight_packed: I32(96, 8), weight_scale: F16(96, 2), weight_shape: I32(2) }),
  },
  {
    form: 'NVFP4 of compressed-tensors',
    message: /NVFP4/,
    rewrite: quantized({ weight_packed: U8(96, 32), weight_scale: F8(96, 4), weight_global_scale: F32(1) }),
  },
  {
    form: 'NVFP4 of ModelOpt',
    message: /NVFP4/,
    rewrite: quantized({ weight: U8(96, 32), weight_scale: F8(96, 4), weight_scale_2: F32() }),
  },
  {
    form: 'FP8 with a scale for each row',
    message: /FP8.*weight_scale/,
    rewrite: quantized({ weight: F8(96, 64), weight_scale: F32(96, 1) }),
  },
  {
    form: 'FP8 with one scale',
    message: /FP8.*weight_scale/,
    rewrite: quantized({ weight: F8(96, 64), weight_scale: F32(), input_scale: F32() }),
  },
  { form: 'INT8', message: /dtype I8/, rewrite: quantized({ weight: I8(96, 64) }) },
  { form: 'HQQ', message: /HQQ/, rewrite: quantized({ W_q: U8(48, 64), scale: F16(96) }) },
  { form: 'ExLlama', message: /ExLlama/, rewrite: quantized({ trellis: F16(6, 4, 4), suh: F16(64), svh: F16(96) }) },
];

describe('a checkpoint that was quantized by a third party', () => {
  for (const { form, message, rewrite } of FORMS) {
    it(`is refused by the tensors that show it, where config.json says nothing: ${form}`, async () => {
      await refuses('mixtral', rewrite, message);
    });
  }

  it('is refused by the quantization that config.json names, with the name of the method', async () => {
    const same: Rewrite = (tensors) => [...tensors];
    const methods: [quantization: Config, message: RegExp][] = [
      [{ quant_method: 'gptq', bits: 3, group_size: 128 }, /GPTQ/],
      [{ quant_method: 'awq', bits: 4, group_size: 128, version: 'marlin' }, /AWQ/],
      [{ quant_method: 'bitsandbytes', load_in_4bit: true }, /bitsandbytes/],
      [{ quant_method: 'compressed-tensors', format: 'marlin-24' }, /compressed-tensors, marlin-24/],
      [{ quant_method: 'modelopt', quant_algo: 'W4A8_AWQ' }, /ModelOpt, W4A8_AWQ/],
      [{ quant_algo: 'NVFP4' }, /NVFP4/],
      [{ quant_method: 'quark' }, /quark/],
      [{ group_size: 64, bits: 4 }, /MLX/],
    ];
    for (const [quantization, message] of methods) {
      for (const fixture of ['mixtral', 'deepseekv3-fp8', 'gptoss-mxfp4']) {
        await refuses(fixture, same, message, { quantization_config: quantization });
      }
    }
    await refuses('mixtral', same, /MLX/, {
      quantization_config: undefined,
      quantization: { group_size: 64, bits: 4 },
    });
    const text_config = configOfFixture('qwen35moe').text_config as Config;
    const inner = { text_config: { ...text_config, quantization_config: { quant_method: 'awq' } } };
    await refuses('qwen35moe', same, /AWQ/, inner);
  });

  it('is refused where FP8 scales are not those that config.json says', async () => {
    const same: Rewrite = (tensors) => [...tensors];
    const fp8 = { quant_method: 'fp8', fmt: 'e4m3' };
    const changes: [quantization: Config, message: RegExp][] = [
      [{ ...fp8, weight_block_size: [64, 64] }, /weight_block_size is \[64,64\]/],
      [{ ...fp8, weight_block_size: [1, 128] }, /weight_block_size is \[1,128\]/],
      [{ ...fp8, activation_scheme: 'frozen' }, /activation_scheme is "frozen"/],
    ];
    const whole = { quantization_config: { ...fp8, weight_block_size: null } };
    await contradicts('deepseekv3-fp8', same, /_scale_inv has shape \[\d+, \d+\], expected \[\] or/, whole);
    for (const [quantization_config, message] of changes) {
      await refuses('deepseekv3-fp8', same, message, { quantization_config });
    }
    const resized =
      (shape: (rows: number) => readonly number[]): Rewrite =>
      (tensors) =>
        tensors.map((tensor) => {
          if (!tensor.name.endsWith('_scale_inv')) return tensor;
          const rows = tensors.find(({ name }) => `${name}_scale_inv` === tensor.name)?.shape[0] ?? 0;
          const size = shape(rows);
          return {
            ...tensor,
            shape: size,
            data: new Uint8Array(4 * size.reduce((product, part) => product * part, 1)),
          };
        });
    for (const shape of [
      () => [],
      (rows: number) => [rows, 1],
      () => [1],
      (rows: number) => [Math.ceil(rows / 64), 3],
    ]) {
      await contradicts('deepseekv3-fp8', resized(shape), /_scale_inv has shape \[.*\], expected/);
    }
    const bare: Rewrite = (tensors) => tensors.filter(({ name }) => !name.endsWith('_scale_inv'));
    await refuses('deepseekv3-fp8', bare, /FP8 without scales/);
    await refuses('deepseekv3-fp8', same, /dtype F8_E4M3/, { quantization_config: undefined });
  });

  it('is refused where MXFP4 is present and not declared, or declared and not present', async () => {
    const same: Rewrite = (tensors) => [...tensors];
    await refuses('gptoss-mxfp4', same, /stored as MXFP4, and config\.json has no/, { quantization_config: undefined });
    const said = { quantization_config: { quant_method: 'mxfp4' } };
    await refuses('gptoss', same, /stored as values, and config\.json says that it is MXFP4/, said);
  });
});

describe('expert tensors stored in another form', () => {
  for (const { fixture, form, rewrite } of REWRITTEN) {
    it(`are read with the same tensors left out: ${fixture}, ${form}`, async () => {
      const others = async (form: Rewrite): Promise<string[]> =>
        (await open(fixture, form)).filter((name) => !name.includes('.experts.'));
      assert.deepEqual(await others(rewrite), await others((tensors) => [...tensors]));
    });
  }

  it('are refused by name where the family does not read that form', async () => {
    await refuses('gemma4moe', (tensors) => separateExperts(tensors, 'experts'), /experts\.0\.\w+\.weight of shape/);
    const renamed =
      (from: RegExp, to: string): Rewrite =>
      (tensors) =>
        tensors.map((tensor) => ({ ...tensor, name: tensor.name.replace(from, to) }));
    await refuses('qwen3moe', renamed(/mlp\.experts\.(\d+)\.gate_proj/, 'mlp.experts.$1.w1'), /experts are stored as/);
    await refuses('granitemoe', renamed(/input_linear/, 'gate_up'), /block_sparse_moe\.(gate_up|output_linear)/);
    const sideways: Rewrite = (tensors) =>
      tensors.map((tensor) => {
        const [experts = 0, rows = 0, columns = 0] = tensor.shape;
        return tensor.name.endsWith('gate_up_proj') ? { ...tensor, shape: [experts, columns, rows] } : tensor;
      });
    await refuses('qwen35moe', sideways, /stand transposed/);
  });
});
