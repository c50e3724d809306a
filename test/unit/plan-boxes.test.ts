import assert from 'node:assert/strict';
import { profileFile } from '../../cli/client/simulation-flags.js';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { deviceOf, nodeTimes } from '../../engine/emulation/node-times.js';
import { clusterTimes, DEFAULT_SET_UP, wholeTokenMs } from '../../simulator/simulate/cluster-set-up.js';
import { diskNeeds } from '../../simulator/plan/disk-needs.js';
import { boxTimes, overrideProfile } from '../../simulator/plan/planned-profile.js';
import { plannedSlots, spareBytes } from '../../simulator/plan/worker-memory.js';

const HOME = loadDeviceProfile(profileFile('orin-nx-rtx3090'));
const BOXES = [{ count: 4, linkBytesPerS: null, memoryBytes: null }];
const NO_CHANGE = { model: null, modelProfile: null, format: null, networkBytesPerS: null, roundTripMs: null };
const near = (actual: number, expected: number): void => {
  assert.ok(Math.abs(actual / expected - 1) < 0.01, `${actual} is not ${expected}`);
};

describe('the boxes of a plan', () => {
  it('need the whole pack, all experts, or their own', () => {
    const setUp = { workers: 4, placement: DEFAULT_SET_UP.placement };
    const all = diskNeeds(HOME.model, 'bf16', setUp);
    near(all.wholePackBytes, 61.1e9);
    near(all.workerBytes, 58e9);
    const own = (replicas: number): number =>
      diskNeeds(HOME.model, 'bf16', { workers: 4, placement: { ...setUp.placement, homes: 'strict', replicas } })
        .workerBytes;
    near(own(1), 58e9 / 4);
    near(own(2), 58e9 / 2);
    near(diskNeeds(HOME.model, 'fixed4', setUp).workerBytes, (58e9 * 3) / 4);
  });

  it('have as many slots as the daemon would have, and cache experts in the rest', () => {
    const times = boxTimes(HOME, BOXES, 'bf16');
    const slots = plannedSlots(times, BOXES, HOME);
    assert.equal(slots, 8);
    const spare = spareBytes(times, BOXES, HOME, slots);
    assert.equal(spare, 13e9 - 1e9 - 8 * times.worker.slotBytes);
    const small = [...BOXES, { count: 1, linkBytesPerS: null, memoryBytes: 1e9 + 3 * times.worker.slotBytes }];
    assert.equal(plannedSlots(times, small, HOME), 3);
    assert.equal(spareBytes(times, small, HOME, 3), 0);
    const testbed = loadDeviceProfile(profileFile('rtx3090-testbed'));
    assert.equal(plannedSlots(clusterTimes(testbed, 'fp32'), BOXES, testbed), 1);
  });

  it('take another model by name, with the bytes of its published form', () => {
    const { model } = overrideProfile(HOME, { ...NO_CHANGE, modelProfile: 'deepseek-v3' });
    const v3 = { ...HOME, model };
    assert.equal(model.shape.expertLayers, 58);
    assert.equal(deviceOf(v3, 'main').weightBytes, 33 / 32);
    near(nodeTimes(v3, 'worker', 'fp8').expertBytes, 45.4e6);
    assert.throws(
      () => overrideProfile(HOME, { ...NO_CHANGE, modelProfile: 'gpt-5' }),
      /no model profile gpt-5; there are .*qwen3-30b-a3b/,
    );
  });

  it('do without a shadow and without a machine that holds everything', () => {
    assert.equal(clusterTimes(HOME, 'bf16').shadow, null);
    assert.equal(wholeTokenMs(HOME, 'cached'), null);
    assert.throws(() => nodeTimes(HOME, 'shadow', 'bf16'), /orin-nx-rtx3090 has no shadow/);
  });
});
