import assert from 'node:assert/strict';
import { afterRefusal, chooseDevice, dependsOnCuda, type DeviceWish } from '../../engine/devices/choose-device.js';
import type { CudaDevice, CudaStatus } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

const WISH: DeviceWish = { backend: 'auto', device: null, instructionSet: 'avx2', threads: 3, budgetBytes: 2 ** 30 };

function gpu(index: number, usable: boolean): CudaDevice {
  return {
    index,
    name: `GPU ${index}`,
    capability: '8.6',
    memoryBytes: 2 ** 34,
    multiprocessors: 82,
    integrated: false,
    pagedMemory: true,
    usable,
    reason: usable ? null : 'no code for it',
  };
}

function cuda(devices: CudaDevice[]): CudaStatus {
  const usable = devices.some((device) => device.usable);
  return {
    built: true,
    library: 'x.so',
    architectures: ['sm_86'],
    usable,
    reason: usable ? null : 'nothing there',
    driverVersion: '13.0',
    runtimeVersion: '13.0',
    devices,
  };
}

describe('the device that a node runs on', () => {
  const chosen = (wish: Partial<DeviceWish>, status: CudaStatus | null, emulated = false) => {
    const { options, reason } = chooseDevice({ ...WISH, ...wish }, status, emulated);
    return [options.backend, options.device, reason];
  };

  it('is under auto the first usable GPU, else the processor, and the reason is reported', () => {
    assert.deepEqual(chosen({}, cuda([gpu(0, true)])), ['cuda', 0, 'the first GPU that can be used']);
    assert.deepEqual(chosen({}, cuda([gpu(0, false), gpu(1, true)])), ['cuda', 1, 'the first GPU that can be used']);
    assert.deepEqual(chosen({}, cuda([gpu(0, false)])), ['cpu', 0, 'CUDA is not used: nothing there']);
    assert.deepEqual(chosen({}, cuda([])), ['cpu', 0, 'CUDA is not used: nothing there']);
  });

  it('is the requested one, usable or not: opening it reports the problem', () => {
    assert.deepEqual(chosen({ backend: 'cpu' }, null), ['cpu', 0, 'as configured']);
    assert.deepEqual(chosen({ backend: 'cuda' }, cuda([gpu(0, false), gpu(1, true)])), ['cuda', 1, 'as configured']);
    assert.deepEqual(chosen({ backend: 'cuda' }, cuda([gpu(0, false)])), ['cuda', 0, 'as configured']);
    assert.deepEqual(chosen({ backend: 'cuda', device: 4 }, cuda([gpu(0, true)])), ['cuda', 4, 'as configured']);
  });

  it('is always the processor under emulation', () => {
    for (const backend of ['auto', 'cpu', 'cuda'] as const) {
      const [taken, , reason] = chosen({ backend }, null, true);
      assert.deepEqual([taken, /emulation/.test(String(reason))], ['cpu', true]);
    }
  });

  it('has the other settings as requested', () => {
    const { options } = chooseDevice({ ...WISH, arithmetic: 'fast' }, cuda([gpu(0, true)]), false);
    assert.deepEqual(options, {
      backend: 'cuda',
      device: 0,
      arithmetic: 'fast',
      instructionSet: 'avx2',
      threads: 3,
      budgetBytes: 2 ** 30,
    });
    assert.equal(chooseDevice(WISH, cuda([]), false).options.arithmetic, 'exact');
  });

  it('is chosen without a look at the driver where nothing depends on it', () => {
    assert.equal(dependsOnCuda(WISH, false), true);
    assert.equal(dependsOnCuda({ ...WISH, backend: 'cuda' }, false), true);
    assert.equal(dependsOnCuda({ ...WISH, backend: 'cpu' }, false), false);
    assert.equal(dependsOnCuda(WISH, true), false);
  });

  it('is the processor where the GPU that auto chose cannot be opened', () => {
    const choice = chooseDevice(WISH, cuda([gpu(0, true)]), false);
    const small = new OdmoeError('DEVICE_OUT_OF_MEMORY', 'the budget does not hold the context');
    const other = afterRefusal(WISH, choice, small, false);
    assert.equal(other?.options.backend, 'cpu');
    assert.match(other?.reason ?? '', /does not hold the context/);
    assert.equal(afterRefusal({ ...WISH, backend: 'cuda' }, choice, small, false), null);
    assert.equal(afterRefusal(WISH, choice, new OdmoeError('INTERNAL', 'a defect'), false), null);
    assert.equal(afterRefusal(WISH, chooseDevice(WISH, cuda([]), false), small, false), null);
    // True: the failure came while the node filled the GPU. Only a lack of memory is then a reason to use the processor.
    assert.equal(afterRefusal(WISH, choice, small, true)?.options.backend, 'cpu');
    assert.equal(afterRefusal(WISH, choice, new OdmoeError('DEVICE_LOST', 'gone'), true), null);
  });
});
