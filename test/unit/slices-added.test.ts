import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { crc32c, sliceRows } from '../../native/index.js';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { openPack } from '../../packs/format/open-pack.js';
import { NATIVE_SLICING_TOOLS } from '../../packs/slices/native-slicing-tools.js';
import { openSlices } from '../../packs/slices/open-slices.js';
import { bitsPerWeight, pairOfSplit, SLICED_SPLITS, splitOfPair } from '../../packs/slices/slice-pair.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { EXPERT_MATRICES, type ModelSource } from '../../shared/model/tensor-source.js';
import { finiteTensors, planesOf, slice, storedBytes, withPack } from './sliced-pack.js';
import { TINY_CONFIG, withTemporaryDirectory, writeTinyCheckpoint } from './tiny-checkpoint.js';
import { directoryDigests, pack, refusal, withCheckpoint } from './tiny-pack.js';

/** Compares every slice in a pack with the slices of the weights of a model. */
async function assertSlicesOf(model: ModelSource, directory: string): Promise<void> {
  const slices = await openSlices(directory);
  for (let layer = 0; layer < model.shape.expertLayers; layer += 1) {
    for (let expert = 0; expert < model.shape.experts; expert += 1) {
      const [source, sliced] = [model.expert(layer, expert), slices.expert(layer, expert)];
      assert.deepEqual(sliced.biases, source.biases);
      assert.equal(sliced.gluLimit, source.gluLimit);
      for (const part of EXPERT_MATRICES) {
        const { rows, columns, split } = source[part];
        const expected = await sliceRows(await planesOf(source[part]), split, rows, columns, slices.split);
        const { chunks, ...matrix } = sliced[part];
        assert.deepEqual(matrix, { rows, columns, split: slices.split, view: null });
        for (const [plane, chunk] of chunks.entries()) {
          const bytes = await storedBytes(chunk);
          assert.equal(chunk.plane, plane);
          assert.equal(chunk.offsetBytes % 4096, 0);
          assert.equal(chunk.crc32c, crc32c(bytes, 0));
          assert.deepEqual(Buffer.from(bytes), Buffer.from(expected[plane] ?? []));
        }
      }
    }
  }
}

describe('slices added to a pack', () => {
  it('change no byte of the pack itself', async () => {
    await withPack(async (output) => {
      const before = await directoryDigests(output);
      const { packDigest } = await openPack(output);
      await slice(output);
      const after = await directoryDigests(output);
      const added = Object.keys(after).filter((name) => !Object.hasOwn(before, name));
      assert.deepEqual(added, [
        'slices-00000.lower.bin',
        'slices-00000.upper.bin',
        'slices-00001.lower.bin',
        'slices-00001.upper.bin',
        'slices.json',
      ]);
      assert.deepEqual(Object.fromEntries(Object.entries(after).filter(([name]) => !added.includes(name))), before);
      assert.equal((await openPack(output)).packDigest, packDigest);
    });
  });

  it('hold the slices of every matrix, whatever its size and the pair of bits', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...SLICED_SPLITS),
        fc.integer({ min: 1, max: 24 }),
        fc.integer({ min: 1, max: 150 }),
        fc.integer({ min: 1, max: 3 }),
        async (split, hidden, intermediate, experts) => {
          const sizes = { hidden_size: hidden * 4, intermediate_size: intermediate, num_local_experts: experts };
          await withPack(
            async (output, checkpoint) => {
              await slice(output, split);
              await assertSlicesOf(await openCheckpoint(checkpoint), output);
            },
            { ...TINY_CONFIG, ...sizes, num_experts_per_tok: 1, head_dim: 8 },
          );
        },
      ),
      { numRuns: 12 },
    );
  });

  it('are those of the FP32 values where the model is shipped in codes, and hold the biases of experts', async () => {
    for (const family of ['gptoss-mxfp4', 'deepseekv3-fp8', 'gptoss', 'step3p5']) {
      await withTemporaryDirectory(async (directory) => {
        const checkpoint = join(packageRoot(), 'test', 'fixtures', family);
        await pack(checkpoint, directory, { tools: NATIVE_SLICING_TOOLS });
        await slice(directory);
        await assertSlicesOf(await openCheckpoint(checkpoint), directory);
      });
    }
  });

  it('come out the same from every codec, and another time', async () => {
    await withPack(async (output, checkpoint) => {
      const { digest } = await slice(output);
      await pack(checkpoint, `${output}-raw`, { tools: NATIVE_SLICING_TOOLS });
      assert.equal((await slice(`${output}-raw`)).digest, digest);
      const before = await directoryDigests(output);
      const again = await slice(output);
      assert.deepEqual([again.digest, again.alreadyWhole, again.mendedFiles], [digest, true, []]);
      assert.deepEqual(await directoryDigests(output), before);
    });
  });

  it('leave packing the same checkpoint again as it was', async () => {
    await withPack(async (output, checkpoint) => {
      await slice(output);
      const before = await directoryDigests(output);
      const again = await pack(checkpoint, output, {
        codec: { codec: 'huffman', level: null },
        tools: NATIVE_SLICING_TOOLS,
      });
      assert.equal(again.alreadyWhole, true);
      assert.deepEqual(await directoryDigests(output), before);
    });
  });

  it('are refused with another pair, and nothing changes', async () => {
    await withPack(async (output) => {
      await slice(output, 'sliced63');
      const before = await directoryDigests(output);
      await assert.rejects(slice(output, 'sliced84'), refusal('USAGE', /holds slices 6,3 already.*for 8,4/));
      assert.deepEqual(await directoryDigests(output), before);
    });
  });

  it('are refused by tensor and row where a weight cannot be sliced', async () => {
    const tensors = finiteTensors();
    const up = tensors.find(({ name }) => name.includes('layers.1') && name.includes('experts.2.w3'));
    assert.ok(up !== undefined);
    // Infinity in row 7 of 16 columns.
    up.data.set([0x80, 0x7f], (7 * 16 + 3) * 2);
    await withCheckpoint(async (checkpoint, output) => {
      await pack(checkpoint, output, { tools: NATIVE_SLICING_TOOLS });
      await assert.rejects(slice(output), refusal('MODEL_UNSUPPORTED', /^experts\.1\.2\.up: row 7 cannot be sliced/));
      assert.ok(!(await readdir(output)).some((name) => name === 'slices.json' || name.endsWith('.partial')));
    }, tensors);
  });

  it('are refused where there is no whole pack', async () => {
    await withTemporaryDirectory(async (directory) => {
      await assert.rejects(slice(directory), refusal('MODEL_NOT_FOUND', /manifest\.json/));
      await writeTinyCheckpoint(directory);
      await assert.rejects(slice(directory), refusal('MODEL_NOT_FOUND', /manifest\.json/));
    });
  });
});

describe('a pair of bits', () => {
  it('is known by its name, and no other is taken', () => {
    for (const split of SLICED_SPLITS) assert.equal(splitOfPair(pairOfSplit(split)), split);
    assert.equal(splitOfPair('8, 4'), 'sliced84');
    for (const text of ['', '8', '4,8', '8,4,2', '5,2', 'toString']) {
      assert.throws(() => splitOfPair(text), refusal('USAGE', /expected one of 8,4; 6,3; 4,2/));
    }
  });

  it('takes the stated bits a weight', () => {
    assert.deepEqual(bitsPerWeight('sliced84'), { upper: 4.75, both: 8.75 });
    assert.deepEqual(bitsPerWeight('sliced42'), { upper: 2.75, both: 4.75 });
  });
});
