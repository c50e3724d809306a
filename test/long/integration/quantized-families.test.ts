import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import { SeededRandom } from '../../../shared/base/runtime/seeded-random.js';
import { readStored } from '../../unit/gguf-from-checkpoint.js';
import { awqConfig, floats, fp8, gptqConfig, wholes } from '../../unit/odd-configs.js';
import { answersOf, distance, fp32Tensor, writeCheckpoint } from '../../unit/odd-model.js';
import { awq, blocksOfFp8, gptq, mxfp8, nvfp4, packed, type Quantizer } from '../../unit/odd-shipped.js';
import { type TinyTensor, withTemporaryDirectory } from '../../unit/tiny-checkpoint.js';

/** Families whose projections lie in one tensor, or are read turned, or whose experts stand beside other networks. */
const FAMILIES = ['deepseekv3', 'gemma4moe', 'glm45', 'lfm2moe', 'qwen2moe', 'qwen35moe', 'qwen3next'];

interface Form {
  config: unknown;
  quantizer: Quantizer;
  /** True for the sizes that the form can have; other matrices stay as they are. */
  fits: (rows: number, columns: number) => boolean;
}

const FORMS: Readonly<Record<string, Form>> = {
  'FP8 in blocks': { config: fp8, quantizer: blocksOfFp8('block', 'F32', 'weight_scale_inv'), fits: () => true },
  'INT4 with zero points': {
    config: wholes(4, 32, { symmetric: false }),
    quantizer: packed(4, 32, 'BF16', false),
    fits: (_, columns) => columns % 8 === 0,
  },
  NVFP4: {
    config: floats('nvfp4-pack-quantized', { strategy: 'tensor_group', group_size: 16 }),
    quantizer: nvfp4('divided'),
    fits: (_, columns) => columns % 16 === 0,
  },
  MXFP8: {
    config: floats('mxfp8-quantized', { group_size: 32, num_bits: 8 }),
    quantizer: mxfp8,
    fits: (_, columns) => columns % 32 === 0,
  },
  AWQ: { config: awqConfig(32), quantizer: awq(32), fits: (rows) => rows % 8 === 0 },
  'GPTQ in any order': {
    config: gptqConfig(4, 32, { desc_act: true }),
    quantizer: gptq(4, 32, 'any', 1),
    fits: (rows, columns) => rows % 8 === 0 && columns % 32 === 0,
  },
};

/** Tensors that no maker quantizes. */
const PLAIN = /embed|lm_head|(^|\.)gate\.weight|router|norm|conv|mtp|vision|shared_expert_gate/;

/** Checkpoints of a family's fixture with random weights in the form, and of the same weights in FP32. */
async function writeBoth(directory: string, family: string, form: Form): Promise<[string, string]> {
  const fixture = join(packageRoot(), 'test', 'fixtures', family);
  const config = JSON.parse(readFileSync(join(fixture, 'config.json'), 'utf8')) as Record<string, unknown>;
  const random = new SeededRandom(3);
  const [shipped, fp32]: [TinyTensor[], TinyTensor[]] = [[], []];
  for (const file of readdirSync(fixture).filter((name) => name.endsWith('.safetensors'))) {
    for (const { name, dtype, dimensions, data } of readStored(fixture, file)) {
      const [rows = 1, columns = 1] = dimensions;
      if (dimensions.length !== 2 || !name.endsWith('.weight') || PLAIN.test(name) || !form.fits(rows, columns)) {
        const same = { name, dtype, shape: dimensions, data };
        shipped.push(same);
        fp32.push(same);
        continue;
      }
      const made = form.quantizer(name.replace(/\.weight$/, ''), rows, columns, random);
      shipped.push(...made.tensors);
      fp32.push(fp32Tensor(name, dimensions, made.values));
    }
  }
  assert.ok(shipped.length > fp32.length, 'some tensors are quantized');
  const path = await writeCheckpoint(
    join(directory, 'shipped'),
    { ...config, quantization_config: form.config },
    shipped,
  );
  return [path, await writeCheckpoint(join(directory, 'plain'), config, fp32)];
}

describe('quantized checkpoints of families', function () {
  this.timeout(120_000);

  for (const family of FAMILIES) {
    for (const [name, form] of Object.entries(FORMS)) {
      it(`answer as their weights in FP32 do: ${family}, ${name}`, async () => {
        await withTemporaryDirectory(async (directory) => {
          const [shipped, plain] = await writeBoth(directory, family, form);
          const off = distance(await answersOf(shipped), await answersOf(plain));
          assert.ok(off < 2e-5, `${off}`);
        });
      });
    }
  }
});
