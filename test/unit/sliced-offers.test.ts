/** Sliced experts beside a lossless plan: their bytes, their speed, and the loss where it was measured. */
import assert from 'node:assert/strict';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { profileFile } from '../../cli/client/simulation-flags.js';
import { offerLines, offersObject } from '../../cli/output/sliced-offers-report.js';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { nodeTimes } from '../../engine/emulation/node-times.js';
import { planSlices } from '../../engine/planning/plan-cache.js';
import { measuredLosses, slicedOffers } from '../../engine/planning/sliced-offers.js';
import { NATIVE_BYTE_TOOLS } from '../../packs/packing/native-tools.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { readQuality } from '../../shared/settings/quality.js';
import { pack } from './tiny-pack.js';

const DEMO = join(packageRoot(), 'models', 'demo');

describe('the offers of sliced experts beside a plan', function () {
  this.timeout(60_000);

  it('name a quality, and the bytes of a weight that it reads', () => {
    const offers = slicedOffers(null);
    for (const { quality, loss } of offers) {
      assert.ok('quality' in readQuality(quality), quality);
      assert.equal(loss, null);
    }
    assert.deepEqual(
      offers.map(({ quality, form }) => [quality, Math.round(form.storedBytes * 8 * 1000) / 1000]),
      [
        ['sliced(8,4)', 8.75],
        ['sliced(8,4,critical=0.3)', 5.95],
        ['sliced(8,4,low)', 4.75],
        ['sliced(6,3)', 6.75],
        ['sliced(6,3,critical=0.3)', 4.65],
        ['sliced(6,3,low)', 3.75],
        ['sliced(4,2)', 4.75],
        ['sliced(4,2,critical=0.3)', 3.35],
        ['sliced(4,2,low)', 2.75],
      ],
    );
  });

  it('have the loss of the model that was measured, as a checkpoint or a pack, and of no other', async () => {
    const root = await mkdtemp(join(tmpdir(), 'odmoe-offers-'));
    try {
      const losses = await measuredLosses(DEMO);
      assert.ok(losses !== null);
      assert.deepEqual(
        slicedOffers(losses).map(({ loss }) => loss),
        Object.values(losses),
      );
      const packed = join(root, 'packed');
      await pack(DEMO, packed, { tools: NATIVE_BYTE_TOOLS });
      assert.equal(await measuredLosses(packed), losses);
      const other = join(root, 'other');
      await cp(DEMO, other, { recursive: true });
      const weights = await readFile(join(other, 'model.safetensors'));
      weights.writeUInt8(weights.readUInt8(weights.length - 1) ^ 1, weights.length - 1);
      await writeFile(join(other, 'model.safetensors'), weights);
      assert.equal(await measuredLosses(other), null);
      assert.equal(await measuredLosses(root), null);
    } finally {
      await rm(root, { recursive: true, force: true });
    }
  });

  it('have slots for both slices, except where no execution reads lower ones', () => {
    const forms = new Map(slicedOffers(null).map(({ quality, form }) => [quality, form]));
    const [high, critical, low] = ['sliced(8,4)', 'sliced(8,4,critical=0.3)', 'sliced(8,4,low)'].map((quality) =>
      requirePresent(forms.get(quality), quality),
    );
    assert.equal(critical?.slotBytes, high?.slotBytes);
    assert.ok((critical?.storedBytes ?? 0) < (high?.storedBytes ?? 0));
    assert.equal(low?.slotBytes, low?.storedBytes);
  });

  it('take the time and memory of their bytes on a worker', () => {
    const profile = loadDeviceProfile(profileFile('orin-nx-rtx3090'));
    const shipped = nodeTimes(profile, 'worker', 'bf16');
    for (const { form } of slicedOffers(null)) {
      const times = nodeTimes(profile, 'worker', form);
      const share = form.storedBytes / 2;
      const slotShare = form.slotBytes / 2;
      assert.ok(Math.abs(times.slotBytes / shipped.slotBytes - slotShare) < 1e-6);
      const { linkLatencyMs } = profile.devices.worker;
      const linkShare = (times.loadMs - linkLatencyMs) / (shipped.loadMs - linkLatencyMs);
      assert.ok(Math.abs(linkShare - share) < 1e-6);
      assert.ok(Math.abs(times.expert.weightsMs / shipped.expert.weightsMs - slotShare) < 1e-6);
    }
  });

  it('are planned with a cache of slices, which holds lower ones only beside all upper ones', () => {
    const load = {
      signMantissaReadMs: 1,
      exponentReadMs: 1,
      decompressMs: 0,
      compressionRatio: 1,
      threads: 1,
      shards: 1,
      tensors: 3,
    };
    const times = { load, costs: { executeMs: 0.1, startMs: 0, interference: 0 } };
    const planned = (budgetBytes: number, lowerBytes = 4) =>
      planSlices(
        { budgetBytes, layers: 2, experts: 4, activated: 1, counts: null },
        { upperBytes: 5, lowerBytes },
        times,
      );
    const held = (...[budgetBytes, lowerBytes]: Parameters<typeof planned>): number[] => {
      const { totals, usedBytes } = planned(budgetBytes, lowerBytes);
      assert.ok(usedBytes <= budgetBytes);
      return [totals.full, totals.exponent];
    };
    assert.deepEqual(held(0), [0, 0]);
    assert.deepEqual(held(39), [0, 7], 'upper slices first');
    assert.deepEqual(held(40 + 9), [2, 6]);
    assert.deepEqual(held(1000), [8, 0]);
    assert.deepEqual(held(22, 0), [4, 0], 'the upper slices are all of the expert');
    const times4 = [0, 39, 49, 1000].map((budgetBytes) => planned(budgetBytes).makespanMs);
    assert.deepEqual(
      times4,
      [...times4].sort((left, right) => right - left),
    );
  });

  it('are reported with what is known, and say where no loss is', () => {
    const planned = (losses: Parameters<typeof slicedOffers>[0]): Parameters<typeof offersObject>[0] =>
      slicedOffers(losses).map((offer) => ({ offer, expertBytes: 1000, bytesShare: 0.5, speedup: 2 }));
    assert.deepEqual(offersObject(planned({ 'sliced(8,4,low)': 0.01 }))[2], {
      quality: 'sliced(8,4,low)',
      expertBytes: 1000,
      bytesShare: 0.5,
      speedup: 2,
      loss: 0.01,
    });
    assert.match(
      offerLines(planned({ 'sliced(8,4,low)': 0.01 }), '').join('\n'),
      /low\) .* 50 % .*2\.00 times +1\.0e-2/,
    );
    assert.match(offerLines(planned(null), '').join('\n'), /The loss is not measured for this model/);
  });
});
