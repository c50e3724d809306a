import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { loadDeviceProfile, parseDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { nodeTimes } from '../../engine/emulation/node-times.js';
import { wholeTokenMs } from '../../simulator/simulate/cluster-set-up.js';
import { attendMs, operatorMs } from '../../engine/emulation/device-profile.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

const PROFILES = join(packageRoot(), 'bench', 'profiles');
const TESTBED = join(PROFILES, 'rtx3090-testbed.yaml');

function near(actual: number, expected: number, tolerance: number): void {
  assert.ok(Math.abs(actual - expected) <= tolerance, `${actual} is not within ${tolerance} of ${expected}`);
}

describe('a device profile', () => {
  it('gives the published layer, expert and cache sizes of Mixtral-8x7B in FP32', () => {
    const profile = loadDeviceProfile(TESTBED);
    const main = nodeTimes(profile, 'main', 'fp32');
    assert.equal(main.cacheRowBytes, 8192);
    assert.equal(main.expertBytes, 3 * 4096 * 14336 * 4);
    const { weightBytesPerS, denseOverheadMs } = profile.devices.main;
    const denseBytes = (2 * 4096 * 4096 + 2 * 1024 * 4096 + 8 * 4096) * 4;
    assert.equal(main.attendLayers.length, 32);
    assert.deepEqual(main.layersBehind, []);
    const [[layer] = []] = main.attendLayers;
    assert.ok(layer);
    near(layer.weightsMs, (denseBytes * 1000) / weightBytesPerS, 0.001);
    near(operatorMs(layer, 1), denseOverheadMs + layer.weightsMs, 1e-9);
    // Besides, keys and values of 100 positions are read.
    const contextMs = (100 * 8192 * 1000) / weightBytesPerS;
    near(attendMs(main, 7, Int32Array.of(99)), denseOverheadMs + layer.weightsMs + contextMs, 1e-9);
    assert.equal(profile.devices.worker.memoryBytes, 1e9);
    assert.equal(profile.devices.main.memoryBytes, 24e9);
  });

  it('counts the memory of a whole model as the paper reports it', () => {
    const profile = loadDeviceProfile(TESTBED);
    const total = (role: 'cached' | 'shadow') => {
      const times = nodeTimes(profile, role, 'fp32');
      return (times.outerBytes + 32 * (times.denseLayerBytes + 8 * times.expertBytes)) / 1e9;
    };
    near(total('cached'), 180, 9);
    near(total('shadow'), 45, 2.5);
    const main = nodeTimes(profile, 'main', 'fp32');
    near((main.outerBytes + 32 * main.denseLayerBytes) / 1e9, 7, 0.2);
  });

  it('reads and holds the experts of a shadow in the bytes that the profile gives them, and all else as before', () => {
    const profile = loadDeviceProfile(TESTBED);
    const plain = nodeTimes(profile, 'shadow', 'fp32');
    const plainTokenMs = wholeTokenMs(profile, 'shadow') ?? assert.fail();
    const { shadow } = profile.devices;
    assert.ok(shadow !== null);
    shadow.expertWeightBytes = 4.75 / 8;
    const sliced = nodeTimes(profile, 'shadow', 'fp32');
    assert.equal(sliced.expertBytes, plain.expertBytes * (4.75 / 8));
    near(sliced.expert.weightsMs, plain.expert.weightsMs * (4.75 / 8), 1e-9);
    const { expert, expertBytes, slotBytes } = plain;
    assert.deepEqual({ ...sliced, expert, expertBytes, slotBytes }, plain);
    const savedMs = 32 * 2 * (plain.expert.weightsMs - sliced.expert.weightsMs);
    near(wholeTokenMs(profile, 'shadow') ?? assert.fail(), plainTokenMs - savedMs, 1e-9);
  });

  it('loads the bytes of the storage form, and executes the form in the slot', () => {
    const profile = loadDeviceProfile(TESTBED);
    const { linkBytesPerS, linkLatencyMs, weightBytesPerS } = profile.devices.worker;
    const parameters = 3 * 4096 * 14336;
    const forms = { fp32: [4, 4], bf16: [2, 2], fixed4: [1.5, 2], huffman: [4 / 3, 2] } as const;
    for (const storage of ['fp32', 'bf16', 'fixed4', 'huffman'] as const) {
      const [stored, slot] = forms[storage];
      const times = nodeTimes(profile, 'worker', storage);
      near(times.loadMs, linkLatencyMs + (parameters * stored * 1000) / linkBytesPerS, 1e-6);
      assert.equal(times.slotBytes, parameters * slot);
      near(times.expert.weightsMs, (parameters * slot * 1000) / weightBytesPerS, 1e-9);
    }
    assert.equal(nodeTimes(profile, 'main', 'fixed4').expertBytes, nodeTimes(profile, 'main', 'fp32').expertBytes);
  });

  it('waits for the recovery of packed experts where recovery is slower than the link', () => {
    const profile = loadDeviceProfile(TESTBED);
    profile.devices.worker.recoverBytesPerS = 10e9;
    const parameters = 3 * 4096 * 14336;
    const { linkLatencyMs, linkBytesPerS } = profile.devices.worker;
    near(nodeTimes(profile, 'worker', 'fixed4').loadMs, linkLatencyMs + (parameters * 2 * 1000) / 10e9, 1e-6);
    near(nodeTimes(profile, 'worker', 'bf16').loadMs, linkLatencyMs + (parameters * 2 * 1000) / linkBytesPerS, 1e-6);
  });

  it('fits two slots of packed experts into the memory of one in FP32', () => {
    const profile = loadDeviceProfile(TESTBED);
    const room = profile.devices.worker.memoryBytes;
    const used = (storage: 'fp32' | 'fixed4', slots: number) => {
      const times = nodeTimes(profile, 'worker', storage);
      return times.slotSharedBytes + slots * times.slotBytes;
    };
    assert.ok(used('fp32', 1) <= room);
    assert.ok(used('fp32', 2) > room);
    assert.ok(used('fixed4', 2) <= room);
  });

  it('with RTX 3080 workers differs in the workers only', () => {
    const { devices, ...rest } = loadDeviceProfile(TESTBED);
    const { devices: other, ...otherRest } = loadDeviceProfile(join(PROFILES, 'rtx3080-workers.yaml'));
    assert.deepEqual({ ...otherRest, name: rest.name }, rest);
    assert.deepEqual({ ...other, worker: devices.worker }, devices);
    near(other.worker.weightBytesPerS / devices.worker.weightBytesPerS, 760 / 936, 0.001);
  });

  it('names file, key and the expected value in its errors', () => {
    const source = readFileSync(TESTBED, 'utf8');
    const faults: [string, string, RegExp][] = [
      ['memory_bytes: 24 GB', 'memory_bytes: much', /p\.yaml: devices\.main\.memory_bytes: expected a size such as/],
      ['duplex: half', 'duplex: both', /p\.yaml: network\.duplex: expected half or full/],
      ['bytes_per_s: 125e6', 'bytes_per_s: 0', /p\.yaml: network\.bytes_per_s: expected bytes per second, from 1000/],
      ['bytes_per_s: 125e6', 'speed: 1', /p\.yaml: network\.speed: unknown key/],
      ['weight_bytes: 4 #', 'weight_bytes: 40 #', /p\.yaml: model\.weight_bytes: expected bytes of a weight/],
      ['  profile: mixtral-8x7b\n', '', /p\.yaml: model\.profile: expected a name/],
      ['name: rtx3090-testbed', 'name: [', /p\.yaml: /],
    ];
    for (const [from, to, expected] of faults) {
      assert.ok(source.includes(from));
      assert.throws(
        () => parseDeviceProfile(source.replace(from, to), 'p.yaml'),
        (thrown) => thrown instanceof OdmoeError && thrown.code === 'CONFIG_INVALID' && expected.test(thrown.message),
        to,
      );
    }
    assert.throws(
      () => parseDeviceProfile(source.replace('mixtral-8x7b', 'mixtral'), 'p.yaml'),
      (thrown) => thrown instanceof OdmoeError && thrown.code === 'USAGE' && /mixtral-8x7b/.test(thrown.message),
    );
    assert.throws(() => loadDeviceProfile('/nowhere/profile.yaml'), /cannot read the device profile \/nowhere/);
    assert.throws(() => parseDeviceProfile('', 'p.yaml'), /p\.yaml: expected name, model/);
  });
});
