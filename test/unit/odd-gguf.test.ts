import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openGguf } from '../../packs/gguf/open-gguf.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { isOdmoe } from './gguf-refusals.js';
import { ggufBytes, ggufParts, type WrittenKey, writeGgufParts } from './gguf-writer.js';
import type { OddType } from './odd-blocks.js';
import { type GgufExperts, oddGguf, type OddGguf, typesInTurn } from './odd-gguf.js';
import { answersOf, distance, oddConfig, type OddSizes, SIZES, writeCheckpoint } from './odd-model.js';

interface Case {
  types: readonly OddType[];
  sizes?: Partial<OddSizes>;
  experts?: GgufExperts;
  leavesOutFactors?: boolean;
}

const ONE = { experts: 1, perToken: 1, layers: 1 };

const CASES: Readonly<Record<string, Case>> = {
  'experts of 40 columns, which are F16 then': { types: ['Q8_0', 'Q5_0', 'Q5_1'], sizes: { intermediate: 40 } },
  'rows of 96 columns': { types: ['Q4_0', 'IQ4_NL', 'Q4_1'], sizes: { hidden: 96, intermediate: 96 } },
  'K-quants, and what replaces them in short rows': {
    types: ['Q4_K', 'Q6_K'],
    sizes: { hidden: 256, intermediate: 96, vocabulary: 259, layers: 1 },
  },
  'K-quants with fused experts of 7 rows': {
    types: ['Q4_K'],
    sizes: { hidden: 256, intermediate: 7, vocabulary: 260, layers: 1, tied: true },
    experts: 'fused',
  },
  'odd rows and columns': { types: ['F16', 'BF16', 'F32'], sizes: { hidden: 50, intermediate: 37 } },
  'one expert in one layer': { types: ['Q8_0', 'NVFP4'], sizes: ONE },
  'NVFP4 whose factors are 1, and so left out': { types: ['NVFP4', 'NVFP4', 'Q8_0'], leavesOutFactors: true },
  'one fused expert in one layer': { types: ['Q8_0'], sizes: { ...ONE, tied: true }, experts: 'fused' },
  'experts apart, and tied embeddings of 4 bits': { types: ['Q4_0'], sizes: { tied: true }, experts: 'apart' },
  'a type for each tensor': {
    types: ['Q8_0', 'NVFP4', 'Q4_0', 'F16', 'BF16', 'MXFP4', 'F32', 'IQ4_NL'],
    sizes: { intermediate: 64, tied: true },
  },
  'fused experts of MXFP4 and NVFP4': {
    types: ['Q8_0', 'MXFP4', 'NVFP4'],
    sizes: { intermediate: 64, layers: 3 },
    experts: 'fused',
  },
};

describe('GGUF files of odd sizes', () => {
  let directory: string;
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-odd-gguf-'));
  });
  after(() => rm(directory, { recursive: true, force: true }));

  for (const [name, { sizes: change, types, experts = 'stacked', ...rest }] of Object.entries(CASES)) {
    it(`answer as their weights in FP32 do: ${name}`, async () => {
      const sizes = { ...SIZES, ...change };
      const made = oddGguf(sizes, new SeededRandom(7), { typeOf: typesInTurn(types, experts), experts, ...rest });
      const path = join(directory, `${types.join('-')}-${experts}.gguf`);
      await writeFile(path, ggufBytes(made));
      const plain = await writeCheckpoint(`${path}-plain`, oddConfig(sizes), made.fp32);
      const off = distance(await answersOf(path), await answersOf(plain));
      assert.ok(off < 1e-5, `${off}`);
    });
  }

  it('say which embedding cannot be looked up', async () => {
    const made = oddGguf(SIZES, new SeededRandom(7), { typeOf: () => 'MXFP4' });
    const path = join(directory, 'embedding.gguf');
    await writeFile(path, ggufBytes(made));
    await assert.rejects(
      openGguf(path),
      isOdmoe('MODEL_UNSUPPORTED', /embedding\.gguf: tensor token_embd\.weight .*MXFP4/),
    );
  });
});

describe('a GGUF file in another order', () => {
  const strange: WrittenKey[] = [
    { name: 'general.some.new.list', type: 'f64', value: [1, 2, 3] },
    { name: 'quantize.imatrix.file', type: 'text', value: 'x.dat' },
    { name: 'other.expert_count', type: 'u64', value: 99 },
    { name: 'general.quantization_version', type: 'u32', value: 2 },
  ];
  let directory: string;
  let made: OddGguf;
  let expected: number[];
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-odd-order-'));
    made = oddGguf({ ...SIZES, ...ONE }, new SeededRandom(3), { typeOf: typesInTurn(['Q8_0', 'Q4_0'], 'stacked') });
    const path = join(directory, 'usual.gguf');
    await writeFile(path, ggufBytes(made));
    expected = await answersOf(path);
  });
  after(() => rm(directory, { recursive: true, force: true }));

  it('answers alike: keys and tensors from the last to the first, keys of other programs, an alignment of 64', async () => {
    const path = join(directory, 'order.gguf');
    const keys = [...strange, ...made.keys].reverse();
    await writeFile(path, ggufBytes({ keys, tensors: [...made.tensors].reverse(), alignment: 64 }));
    assert.deepEqual(await answersOf(path), expected);
  });

  it('answers alike in parts, whichever is named, one of them without tensors', async () => {
    const tensors = [...made.tensors].reverse();
    const parts = ggufParts([...strange, ...made.keys], [[], tensors.slice(0, 5), tensors.slice(5)]);
    const paths = await writeGgufParts(directory, 'parts', parts);
    for (const path of paths) assert.deepEqual(await answersOf(path), expected, path);
  });
});
