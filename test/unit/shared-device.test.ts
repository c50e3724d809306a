import assert from 'node:assert/strict';
import { NATIVE_DEVICES } from '../../engine/devices/devices.js';
import { SharedDevice } from '../../engine/devices/shared-device.js';
import { wrapHandle } from '../../native/index.js';
import { openTestDevice } from './native-test-model.js';

describe('a device with several users in a process', () => {
  it('closes with the last user, however often another user reports its end', () => {
    const device = openTestDevice();
    let closed = 0;
    const dispose = (): void => {
      closed += 1;
      device.dispose();
    };
    const shared = new SharedDevice(wrapHandle(device, { dispose }));
    const [first, last] = [shared.open(), shared.open()];
    for (let time = 0; time < 3; time += 1) first.dispose();
    assert.equal(closed, 0);
    for (let time = 0; time < 2; time += 1) last.dispose();
    assert.equal(closed, 1);
    const request = { backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 } as const;
    assert.throws(() => shared.asDevices(NATIVE_DEVICES, 0).open(request), { code: 'DEVICE_UNAVAILABLE' });
  });
});
