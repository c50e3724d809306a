/** DeepSeek-V4 as its makers ship it: attention and shared experts in FP8 with scales of 8 bits, experts in MXFP4 as whole numbers of 8 bits. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { configOf } from './fixture-config.js';
import { readStored, type StoredValues } from './gguf-from-checkpoint.js';
import { answersOf, distance, fp32Tensor, plainValues, writeCheckpoint } from './odd-model.js';
import { blocksOfFp8, mxfp4Pairs, type Quantizer } from './odd-shipped.js';
import { type TinyTensor, withTemporaryDirectory } from './tiny-checkpoint.js';

const FIXTURE = join(packageRoot(), 'test', 'fixtures', 'deepseekv4');
/** Sizes of the fixture that are no multiples of 32, and the ones of this test. */
const SIZES: Readonly<Record<number, number>> = { 48: 64, 192: 256, 20: 32 };
const CONFIG = { ...configOf('deepseekv4'), hidden_size: 64, moe_intermediate_size: 32 };
const QUANTIZATION = {
  quant_method: 'fp8',
  fmt: 'e4m3',
  scale_fmt: 'ue8m0',
  weight_block_size: [128, 128],
  activation_scheme: 'dynamic',
};

const FP8 = blocksOfFp8('block', 'F8_E8M0', 'scale');
const FP8_MODULES = /\.(wq_a|wq_b|wkv|wo_a|wo_b|shared_experts\.w[123])\.weight$/;
const EXPERTS = /\.experts\.\d+\.w[123]\.weight$/;

function sizesOf({ name, dimensions }: StoredValues): readonly number[] {
  if (/wo_a|\.ape$|norm\.weight$/.test(name) && !/(attn_norm|ffn_norm)\.weight$|^norm/.test(name)) return dimensions;
  const last = dimensions.length - 1;
  const keepsRows = name.includes('compressor');
  return dimensions.map((size, at) => (keepsRows && at !== last ? size : (SIZES[size] ?? size)));
}

interface Written {
  shipped: TinyTensor[];
  fp32: TinyTensor[];
}

/** The fixture's tensors in this test's sizes. `experts`: null leaves the experts in FP8, as the base model has them. */
function tensorsOf(experts: Quantizer | null, fp8 = FP8): Written {
  const random = new SeededRandom(5);
  const written: Written = { shipped: [], fp32: [] };
  for (const stored of readStored(FIXTURE)) {
    const { name } = stored;
    if (name.endsWith('tid2eid')) {
      const same = { name, dtype: stored.dtype, shape: stored.dimensions, data: stored.data };
      written.shipped.push(same);
      written.fp32.push(same);
      continue;
    }
    const shape = sizesOf(stored);
    const [rows = 1, columns = 1] = shape;
    const isExpert = EXPERTS.test(name);
    const isFp8 = FP8_MODULES.test(name) && !name.includes('compressor');
    if (!isExpert && !isFp8) {
      const kind = shape.length === 1 ? 'vector' : 'linear';
      const plain = fp32Tensor(name, shape, plainValues({ shape, kind }, random));
      written.shipped.push(plain);
      written.fp32.push(plain);
      continue;
    }
    const quantizer = isExpert && experts !== null ? experts : fp8;
    const { tensors, values } = quantizer(name.replace(/\.weight$/, ''), rows, columns, random);
    written.shipped.push(...tensors);
    written.fp32.push(fp32Tensor(name, shape, values));
  }
  return written;
}

describe('the quantized weights of DeepSeek-V4', () => {
  const shipped = async (directory: string, change: object, tensors: TinyTensor[]): Promise<string> =>
    writeCheckpoint(join(directory, 'shipped'), { ...CONFIG, ...change }, tensors);

  const forms: readonly [string, object, Quantizer | null, Quantizer][] = [
    ['MXFP4 beside FP8', { expert_dtype: 'fp4', quantization_config: QUANTIZATION }, mxfp4Pairs, FP8],
    [
      'MXFP4 beside FP8, named inside',
      { quantization_config: { ...QUANTIZATION, expert_dtype: 'fp4' } },
      mxfp4Pairs,
      FP8,
    ],
    [
      'FP8 with scales of 32 bits',
      { expert_dtype: 'fp8', quantization_config: QUANTIZATION },
      null,
      blocksOfFp8('block', 'F32', 'scale'),
    ],
  ];
  for (const [name, change, experts, fp8] of forms) {
    it(`answer as the same weights in FP32 do: ${name}`, async () => {
      await withTemporaryDirectory(async (directory) => {
        const written = tensorsOf(experts, fp8);
        const path = await shipped(directory, change, written.shipped);
        const plain = await writeCheckpoint(join(directory, 'plain'), CONFIG, written.fp32);
        const off = distance(await answersOf(path), await answersOf(plain));
        assert.ok(off < 2e-5, `${off}`);
      });
    });
  }

  it('are refused where scales are missing or of another shape', async () => {
    const change = { expert_dtype: 'fp4', quantization_config: QUANTIZATION };
    const { shipped: whole } = tensorsOf(mxfp4Pairs);
    const expert = 'layers.0.ffn.experts.0.w1.scale';
    const attention = 'layers.0.attn.wq_a.scale';
    const cases: readonly [TinyTensor[], RegExp][] = [
      [whole.filter(({ name }) => name !== expert), /experts\.0\.w1/],
      [whole.filter(({ name }) => name !== attention), /wq_a/],
      [
        whole.map((one) => (one.name === expert ? { ...one, shape: [1, 64] } : one)),
        /layers\.0\.ffn\.experts\.0\.w1\.scale has shape \[1, 64\], expected \[32, 2\]/,
      ],
    ];
    for (const [tensors, message] of cases) {
      await withTemporaryDirectory(async (directory) => {
        const path = await shipped(directory, change, tensors);
        await assert.rejects(answersOf(path), (thrown: unknown) => {
          assert.ok(thrown instanceof OdmoeError, String(thrown));
          assert.ok(thrown.code === 'MODEL_CORRUPT' || thrown.code === 'MODEL_UNSUPPORTED', thrown.message);
          assert.match(thrown.message, message);
          return true;
        });
      });
    }
  });
});
