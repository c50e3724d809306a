import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describeModel, type DescribedSlots } from '../../packs/describe-model.js';
import { openPack } from '../../packs/format/open-pack.js';
import { NATIVE_BYTE_TOOLS } from '../../packs/packing/native-tools.js';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { withTemporaryDirectory } from './tiny-checkpoint.js';
import { pack } from './tiny-pack.js';

const FIXTURES = join(packageRoot(), 'test', 'fixtures');
const FAMILIES = readdirSync(FIXTURES).filter((name) => existsSync(join(FIXTURES, name, 'config.json')));
const SLOTS: DescribedSlots = { shippedBytes: 1, slicedBytes: () => ({ upper: 2, both: 3 }) };

describe('the description of a model', () => {
  for (const family of FAMILIES) {
    it(`counts each stored byte once: ${family}`, async () => {
      const checkpoint = await openCheckpoint(join(FIXTURES, family));
      const model = describeModel(checkpoint, SLOTS);
      const tensorBytes = checkpoint.files
        .flatMap(({ tensors }) => [...tensors.values()])
        .reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
      const leftOutBytes = model.leftOut.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
      const headBytes = model.draftHeadBytes ?? 0;
      assert.equal(model.denseBytes + model.expertBytes + headBytes + leftOutBytes, tensorBytes);
      assert.ok(model.bytesPerLayer.every((bytes) => bytes > 0));
    });
  }

  it('counts the biases of experts in a pack, too', async () => {
    await withTemporaryDirectory(async (directory) => {
      await pack(join(FIXTURES, 'gptoss'), directory, { tools: NATIVE_BYTE_TOOLS });
      const source = await openPack(directory);
      const { hiddenSize, expert, experts, expertLayers } = source.shape;
      const values = 3 * hiddenSize * expert.intermediateSize;
      const biases = 2 * expert.intermediateSize + hiddenSize;
      const model = describeModel(source, SLOTS);
      assert.equal(model.expertBytes, expertLayers * experts * (values * 2 + biases * 4));
      const dense = source.manifest.dense.reduce((sum, { rows, columns }) => sum + rows * columns, 0);
      assert.equal(model.parameters, dense + expertLayers * experts * (values + biases));
    });
  });
});
