import assert from 'node:assert/strict';
import { openCheckpoint } from '../../packs/checkpoint/checkpoint.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { configOfFixture, tensorsOfFixture } from './rewritten-experts.js';
import { withTemporaryDirectory, writeTinyCheckpoint } from './tiny-checkpoint.js';

/** Opens a checkpoint whose logarithms of decays are this number. */
async function opened(fixture: string, log: number): Promise<void> {
  const config = configOfFixture(fixture);
  const tensors = (await tensorsOfFixture(fixture)).map((tensor) => {
    if (!tensor.name.endsWith('A_log')) return tensor;
    const values = new Float32Array(tensor.shape.reduce((count, size) => count * size, 1)).fill(log, 1);
    return { ...tensor, dtype: 'F32', data: new Uint8Array(values.buffer) };
  });
  assert.ok(tensors.some(({ name }) => name.endsWith('A_log')));
  await withTemporaryDirectory(async (directory) => {
    await writeTinyCheckpoint(directory, tensors, { config });
    await openCheckpoint(directory);
  });
}

describe('the logarithm of a decay', () => {
  for (const fixture of ['qwen35moe', 'kimilinear', 'granitemoehybrid', 'glm5next']) {
    it(`is refused where its exponential is no finite number, by file and tensor: ${fixture}`, async () => {
      for (const log of [-1e38, 0, 88]) await opened(fixture, log);
      for (const log of [89, 200, 1e38, NaN]) {
        await assert.rejects(opened(fixture, log), (error) => {
          assert.ok(error instanceof OdmoeError && error.code === 'MODEL_CORRUPT');
          assert.match(error.message, /model\.safetensors: tensor \S+A_log has \S+ at 1, the logarithm of a decay/);
          return true;
        });
      }
    });
  }
});
