import assert from 'node:assert/strict';
import { plainGlu } from '../../engine/emulation/plain-shape.js';
import {
  FROM_STORAGE,
  PLAIN_LOADER,
  createExpertMaps,
  nativeErrorCodes,
  openHandles,
  type OpenHandles,
} from '../../native/index.js';
import { isErrorCode } from '../../shared/base/errors/odmoe-error.js';
import { FIXTURE_SIZES, expertSource, loadFixture, openTestDevice } from './native-test-model.js';

const { hiddenSize, intermediateSize } = FIXTURE_SIZES;

/** Other tests of this process may have left garbage that has not been collected. */
function since(before: OpenHandles): OpenHandles {
  const now = openHandles();
  const keys = Object.keys(now) as (keyof OpenHandles)[];
  return Object.fromEntries(keys.map((key) => [key, now[key] - before[key]])) as unknown as OpenHandles;
}

describe('open native handles', () => {
  it('are counted until they are disposed of and their calls have settled', async () => {
    const before = openHandles();
    const device = openTestDevice({ threads: 1 });
    const model = await loadFixture(device, { experts: false });
    const sequence = model.createSequence();
    const pass = model.createPass(2);
    const slots = device.createExpertSlots(
      { hiddenSize, glu: plainGlu(intermediateSize), format: 'bf16' },
      2,
      1,
      PLAIN_LOADER,
    );
    const maps = createExpertMaps({ hiddenSize: 2, experts: 1, units: 1, layers: 1, distances: [0] }, [
      {
        units: new Int8Array(2),
        unitScales: new Float32Array(1),
        heads: new Int8Array(1),
        headScales: new Float32Array(1),
        biases: new Float32Array(1),
      },
    ]);
    const load = slots.load(0, slots.register(expertSource(0, 0)), FROM_STORAGE);
    const { memoryBytes, ...open } = since(before);
    assert.deepEqual(open, { devices: 1, models: 1, sequences: 1, passes: 1, expertSlots: 1, expertMaps: 1, calls: 1 });
    assert.ok(memoryBytes > 0);
    await load;
    assert.equal(since(before).calls, 0);
    for (const handle of [slots, maps, pass, sequence]) handle.dispose();
    assert.deepEqual({ ...since(before), memoryBytes: 0 }, { ...NOTHING, devices: 1, models: 1 });
    model.dispose();
    device.dispose();
    assert.deepEqual(since(before), NOTHING);
  });
});

const NOTHING: OpenHandles = {
  devices: 0,
  models: 0,
  sequences: 0,
  passes: 0,
  expertSlots: 0,
  expertMaps: 0,
  calls: 0,
  memoryBytes: 0,
};

describe('error codes of the native core', () => {
  it('equal those of the registry', () => {
    const codes = nativeErrorCodes();
    assert.ok(codes.includes('DEVICE_OUT_OF_MEMORY') && codes.includes('INTERNAL'));
    for (const code of codes) assert.ok(isErrorCode(code), `${code} is not in shared/base/errors/registry.ts`);
    assert.equal(new Set(codes).size, codes.length);
  });
});
