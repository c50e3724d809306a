import assert from 'node:assert/strict';
import { join } from 'node:path';
import { measureHomes, type HomesResult } from '../../bench/homes/measure-homes.js';
import { shippedStorage, type ProfiledDevice } from '../../engine/emulation/device-profile.js';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { packageRoot } from '../../shared/base/files/package-root.js';

/** Memory and links are slower by this, so that few tokens of few layers take seconds. */
const SLOWER = 20;

/** A Jetson beside a worker with a 3090, with a model of the same experts and fewer layers. */
function measure(cachedPart: number, tokens = 250): Promise<HomesResult> {
  const profile = loadDeviceProfile(join(packageRoot(), 'bench', 'profiles', 'orin-nx-rtx3090.yaml'));
  const { model, devices } = profile;
  const layers = model.shape.layers.slice(0, 4);
  const shape = { ...model.shape, layers, expertLayers: layers.length, experts: 32 };
  const slower = (device: ProfiledDevice): ProfiledDevice => ({
    ...device,
    weightBytesPerS: device.weightBytesPerS / SLOWER,
    linkBytesPerS: device.linkBytesPerS / SLOWER,
  });
  const slow = { ...devices, main: slower(devices.main), worker: slower(devices.worker) };
  const small = { ...profile, devices: slow, model: { ...model, shape } };
  return measureHomes({
    profile: small,
    storage: shippedStorage(profile.model),
    slowWorkers: 1,
    cachedPart,
    tokens,
    seed: 1,
  });
}

describe('bench homes: strict homes by speed', () => {
  let resident: HomesResult;

  before(async () => {
    resident = await measure(1);
  });

  it('decode faster than by count, with a fast worker beside a slow one', () => {
    const [fast = 0, slow = 0] = resident.shares;
    // An expert takes 0.05 ms and its bytes at 708 or 77 GB/s, divided by SLOWER: 7.9 times as long.
    assert.deepEqual([fast, slow], [24, 3]);
    assert.ok(resident.speedUp > 1.5, JSON.stringify(resident));
  });

  it('count what a cache holds: the slow worker keeps more where the fast one would load', async () => {
    const part = await measure(0.75);
    const ratioOf = ({ shares: [fast = 0, slow = 1] }: HomesResult): number => fast / slow;
    assert.ok(ratioOf(part) < ratioOf(resident), `${ratioOf(part)} ${ratioOf(resident)}`);
    assert.ok(part.speedUp > 0.97, JSON.stringify(part));
  });

  it('leave homes by count where the fast worker would have to load what the slow one holds', async () => {
    const { shares, byCountMs, bySpeedMs } = await measure(0.5);
    assert.deepEqual(shares, [1, 1]);
    assert.ok(byCountMs > 0 && bySpeedMs === byCountMs, `${byCountMs} ${bySpeedMs}`);
  });

  it('need an answer that is long enough for the workers to report their speeds', async () => {
    await assert.rejects(measure(1, 12), { code: 'USAGE', message: /give more --tokens/ });
  });
});
