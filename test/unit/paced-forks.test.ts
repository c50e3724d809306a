import assert from 'node:assert/strict';
import type { Device, Model, Pass, Sequence } from '../../native/index.js';
import { isRecurrent } from '../../shared/model/model-shape.js';
import { FIXTURE_SHAPE, bits, loadFixture } from './native-test-model.js';
import { RandomWeights } from './native-random-model.js';
import { BYTES, codeIs, onPaced } from './paced-device-setting.js';
import { RANDOM_SHAPES } from './random-model-shapes.js';

const STATES = 5000;
const ROW_BLOCK_POSITIONS = 256;
/** Bytes of one row block in all layers. */
const ROW_BLOCK = FIXTURE_SHAPE.layers.length * ROW_BLOCK_POSITIONS * BYTES.cacheRowBytes;
const MEMORY = { bytes: { ...BYTES, stateBytes: STATES }, budgetBytes: 0 };

async function begin(pass: Pass, rows: readonly { sequence: Sequence; count: number }[]): Promise<void> {
  const sequences = rows.map(({ sequence }) => sequence);
  const owners = rows.flatMap(({ count }, index) => new Array<number>(count).fill(index));
  const positions = rows.flatMap(({ sequence, count }) => Array.from({ length: count }, (_, i) => sequence.length + i));
  const tokens = Int32Array.from(positions, (position) => (position * 7 + 3) % 50);
  await pass.begin(sequences, Int32Array.from(owners), Int32Array.from(positions), tokens);
}

/** Logits of the last row. */
async function extend(model: Model, sequence: Sequence, count: number): Promise<Uint32Array> {
  const pass = model.createPass(count);
  await begin(pass, [{ sequence, count }]);
  await pass.forward(null);
  const logits = await pass.logits(Int32Array.of(count - 1));
  pass.dispose();
  return bits(logits);
}

describe('forks on a paced device', () => {
  const onModel = (use: (model: Model, device: Device) => Promise<void>, memory = MEMORY): Promise<void> =>
    onPaced(async (device) => use(await loadFixture(device, { experts: true }), device), { memory });

  it('share the memory of the profiled model until one of them writes there', async () => {
    await onModel(async (model, device) => {
      const source = model.createSequence();
      const loadedBytes = device.info().usedBytes;
      assert.equal(model.sequenceBytes, 0);
      assert.equal(source.bytesToWrite(0, 300), 2 * ROW_BLOCK + STATES);
      await extend(model, source, 300);
      const held = (bytes: number): void => {
        assert.equal(model.sequenceBytes, bytes);
        assert.equal(device.info().usedBytes, loadedBytes + bytes);
      };
      held(2 * ROW_BLOCK + STATES);
      const within = source.fork(300);
      const atRowBlock = source.fork(256);
      const empty = source.fork(0);
      held(2 * ROW_BLOCK + STATES);
      assert.equal(atRowBlock.bytesToWrite(256, 257), ROW_BLOCK + STATES);
      assert.equal(within.bytesToWrite(300, 301), ROW_BLOCK + STATES);
      assert.equal(within.bytesToWrite(200, 301), 2 * ROW_BLOCK + STATES);
      await extend(model, within, 1);
      held(3 * ROW_BLOCK + 2 * STATES);
      assert.equal(within.bytesToWrite(301, 302), 0);
      assert.equal(source.bytesToWrite(300, 301), STATES);
      source.dispose();
      held(2 * ROW_BLOCK + 2 * STATES);
      assert.equal(atRowBlock.bytesToWrite(256, 257), ROW_BLOCK);
      await extend(model, empty, 10);
      held(3 * ROW_BLOCK + 3 * STATES);
      for (const fork of [within, atRowBlock, empty, empty]) fork.dispose();
      held(0);
    });
  });

  it('take their missing memory, in a pass of several too, or nothing', async () => {
    let loadedBytes = 0;
    await onModel(async (_, device) => {
      loadedBytes = device.info().usedBytes;
    });
    const one = ROW_BLOCK + STATES;
    const memory = { ...MEMORY, budgetBytes: loadedBytes + 3 * one - 1 };
    await onModel(async (model, device) => {
      const pass = model.createPass(3);
      const source = model.createSequence();
      await extend(model, source, 10);
      const forks = [source.fork(10), source.fork(10)];
      const rowOf = (sequence: Sequence): { sequence: Sequence; count: number } => ({ sequence, count: 1 });
      await assert.rejects(begin(pass, [source, ...forks].map(rowOf)), codeIs('DEVICE_OUT_OF_MEMORY'));
      assert.equal(model.sequenceBytes, one);
      for (const sequence of [source, ...forks]) assert.equal(sequence.bytesToWrite(10, 11), one);
      forks.pop()?.dispose();
      // When one of two has its own copy, the other one alone has the shared memory.
      await begin(pass, [source, ...forks].map(rowOf));
      assert.equal(model.sequenceBytes, 2 * one);
      assert.equal(device.info().usedBytes, loadedBytes + 2 * one);
    }, memory);
  });

  it('continue as separate sequences, from any promised position', async () => {
    for (const shape of Object.values(RANDOM_SHAPES)) {
      const weights = new RandomWeights(shape);
      await onPaced(async (device) => {
        const model = await weights.load(device, true);
        const source = model.createSequence();
        const fresh = model.createSequence();
        for (const count of [100, 20, 5]) await extend(model, source, count);
        const { oldestPosition } = source;
        assert.equal(
          oldestPosition > 0,
          shape.layers.some(({ mixer }) => isRecurrent(mixer)),
        );
        const fork = source.fork(oldestPosition === 0 ? 90 : oldestPosition);
        assert.equal(fork.oldestPosition, oldestPosition);
        if (oldestPosition > 0) assert.throws(() => source.fork(oldestPosition - 1), codeIs('INTERNAL'));
        assert.throws(() => source.fork(126), codeIs('INTERNAL'));
        assert.equal(source.fork(0).oldestPosition, 0);
        await extend(model, source, 3);
        assert.deepEqual(await extend(model, fork, 110 - fork.length), await extend(model, fresh, 110));
        assert.deepEqual(await extend(model, source, 1), await extend(model, fresh, 129 - 110));
      });
      weights.dispose();
    }
  });
});
