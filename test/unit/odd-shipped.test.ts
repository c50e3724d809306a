import assert from 'node:assert/strict';
import { join } from 'node:path';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { isOdmoe } from './gguf-refusals.js';
import { awqConfig, floats, fp8, gptqConfig, wholes } from './odd-configs.js';
import {
  answersOf,
  distance,
  fp32Tensor,
  oddConfig,
  type OddSizes,
  type OddTensor,
  oddTensors,
  plainValues,
  SIZES,
  writeCheckpoint,
} from './odd-model.js';
import { awq, blocksOfFp8, gptq, mxfp4, mxfp8, nvfp4, packed, type Quantizer } from './odd-shipped.js';
import { type TinyTensor, withTemporaryDirectory } from './tiny-checkpoint.js';

interface Case {
  config: unknown;
  quantizer: Quantizer;
  sizes?: Partial<OddSizes>;
  /** Which tensors are quantized; left out: projections of attention, and experts. */
  kinds?: readonly OddTensor['kind'][];
}

const ONE = { experts: 1, perToken: 1, layers: 1 };

const CASES: Readonly<Record<string, Case>> = {
  'FP8 in blocks, some of them cut': {
    config: fp8,
    quantizer: blocksOfFp8('block', 'BF16', 'weight_scale_inv'),
    sizes: { hidden: 133, intermediate: 37, layers: 1 },
  },
  'FP8 in blocks, one row and one expert': {
    config: fp8,
    quantizer: blocksOfFp8('block', 'F32', 'weight_scale_inv'),
    sizes: { hidden: 50, intermediate: 1, ...ONE },
  },
  'FP8 by row, experts of one row': {
    config: floats('float-quantized', { strategy: 'channel', num_bits: 8 }),
    quantizer: blocksOfFp8('channel', 'BF16', 'weight_scale'),
    sizes: { hidden: 50, intermediate: 1 },
  },
  'FP8 by matrix, and the head, too': {
    config: floats('float-quantized', { strategy: 'tensor', num_bits: 8 }),
    quantizer: blocksOfFp8('tensor', 'F32', 'weight_scale'),
    sizes: { hidden: 50, intermediate: 37 },
    kinds: ['linear', 'expert', 'head'],
  },
  'INT4 in groups of 32, the last one of 8 columns': {
    config: wholes(4, 32),
    quantizer: packed(4, 32, 'BF16', true),
    sizes: { intermediate: 40, hidden: 72 },
  },
  'INT4 in groups that are wider than the rows': {
    config: wholes(4, 128),
    quantizer: packed(4, 128, 'F32', true),
    sizes: { intermediate: 8, hidden: 136 },
  },
  'INT4 with zero points, by group': {
    config: wholes(4, 32, { symmetric: false }),
    quantizer: packed(4, 32, 'F16', false),
    sizes: { intermediate: 40, hidden: 72 },
  },
  'INT4 with zero points, by row': {
    config: wholes(4, null, { symmetric: false }),
    quantizer: packed(4, 0, 'BF16', false),
    sizes: { intermediate: 40, hidden: 72, ...ONE },
  },
  'INT8 in rows of whole words': {
    config: wholes(8, 64, { symmetric: false }),
    quantizer: packed(8, 64, 'BF16', false),
    sizes: { intermediate: 36, hidden: 68, tied: true },
  },
  MXFP4: { config: floats('mxfp4-pack-quantized', { group_size: 32 }), quantizer: mxfp4, sizes: { intermediate: 96 } },
  MXFP8: {
    config: floats('mxfp8-quantized', { group_size: 32, num_bits: 8 }),
    quantizer: mxfp8,
    sizes: { intermediate: 32, hidden: 96, ...ONE },
  },
  'NVFP4 of compressed-tensors': {
    config: floats('nvfp4-pack-quantized', { strategy: 'tensor_group', group_size: 16 }),
    quantizer: nvfp4('divided'),
    sizes: { intermediate: 16, hidden: 80 },
  },
  'NVFP4 of ModelOpt': {
    config: { quant_method: 'modelopt', quant_algo: 'NVFP4', ignore: [] },
    quantizer: nvfp4('multiplied'),
    sizes: { intermediate: 48 },
  },
  'AWQ with a short last group': { config: awqConfig(32), quantizer: awq(32), sizes: { intermediate: 40, hidden: 72 } },
  'AWQ of whole rows': { config: awqConfig(-1), quantizer: awq(0), sizes: { intermediate: 40, ...ONE } },
  'GPTQ with a short last group': {
    config: gptqConfig(4, 32),
    quantizer: gptq(4, 32, 'plain', 1),
    sizes: { intermediate: 40, hidden: 72 },
  },
  'GPTQ of 8 bits without an order': {
    config: gptqConfig(8, 128, { checkpoint_format: 'gptq_v2' }),
    quantizer: gptq(8, 128, 'none', 2),
    sizes: { intermediate: 36, hidden: 132 },
  },
  'GPTQ of whole rows, in an order that changes nothing': {
    config: gptqConfig(4, -1, { desc_act: true }),
    quantizer: gptq(4, 0, 'plain', 1),
    sizes: { intermediate: 40, hidden: 72, ...ONE },
  },
  'GPTQ in an order that many rows hold, and eight': {
    config: gptqConfig(4, 32, { desc_act: true }),
    quantizer: gptq(4, 32, 'any', 1),
    sizes: { intermediate: 8, hidden: 96 },
    kinds: ['expert'],
  },
};

/** Sizes that a form cannot have, and the words of the refusal. */
const REFUSED: readonly (readonly [string, Case, RegExp])[] = [
  [
    'INT4 rows that end inside a word',
    { config: wholes(4, 32), quantizer: packed(4, 32, 'BF16', true), sizes: { intermediate: 37 } },
    /experts\.0\.down_proj have 37 columns of 4 bits, which fill no whole number of words/,
  ],
  [
    'AWQ outputs that end inside a word',
    { config: awqConfig(32), quantizer: awq(32), sizes: { intermediate: 37 } },
    /experts\.0\.gate_proj are 37 x 64 codes of 4 bits/,
  ],
  [
    'an order of columns with a short last group',
    {
      config: gptqConfig(4, 32, { desc_act: true }),
      quantizer: gptq(4, 32, 'any', 1),
      sizes: { intermediate: 40, hidden: 64 },
    },
    /experts\.0\.down_proj have 40 columns in an order of their own/,
  ],
];

/** The checkpoint as it is shipped, and the same in FP32. */
async function writeBoth(
  directory: string,
  { sizes: change, config, quantizer, kinds }: Case,
): Promise<[string, string]> {
  const sizes = { ...SIZES, ...change };
  const random = new SeededRandom(7);
  const [shipped, fp32]: [TinyTensor[], TinyTensor[]] = [[], []];
  for (const tensor of oddTensors(sizes)) {
    const [rows = 1, columns = 1] = tensor.shape;
    if (!(kinds ?? ['linear', 'expert']).includes(tensor.kind)) {
      const same = fp32Tensor(tensor.name, tensor.shape, plainValues(tensor, random));
      shipped.push(same);
      fp32.push(same);
      continue;
    }
    const made = quantizer(tensor.name.replace(/\.weight$/, ''), rows, columns, random);
    shipped.push(...made.tensors);
    fp32.push(fp32Tensor(tensor.name, tensor.shape, made.values));
  }
  const path = await writeCheckpoint(join(directory, 'shipped'), oddConfig(sizes, config), shipped);
  return [path, await writeCheckpoint(join(directory, 'plain'), oddConfig(sizes), fp32)];
}

describe('quantized checkpoints of odd sizes', () => {
  for (const [name, one] of Object.entries(CASES)) {
    it(`answer as their weights in FP32 do: ${name}`, async () => {
      await withTemporaryDirectory(async (directory) => {
        const [shipped, plain] = await writeBoth(directory, one);
        const off = distance(await answersOf(shipped), await answersOf(plain));
        assert.ok(off < 1e-5, `${off}`);
      });
    });
  }

  for (const [name, one, words] of REFUSED) {
    it(`are refused in words: ${name}`, async () => {
      await withTemporaryDirectory(async (directory) => {
        const [shipped] = await writeBoth(directory, one);
        await assert.rejects(openCheckpoint(shipped), isOdmoe('MODEL_UNSUPPORTED', words));
      });
    });
  }
});
