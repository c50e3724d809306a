/** Sliced experts beside a lossless plan: their bytes, their speed, and the loss where it was measured. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseRunLines } from '../../bench/history/run-line.js';
import { profileFile } from '../../cli/client/simulation-flags.js';
import { offerLines, offersObject, type PlannedOffer } from '../../cli/output/sliced-offers-report.js';
import { loadDeviceProfile } from '../../engine/emulation/load-device-profile.js';
import { nodeTimes } from '../../engine/emulation/node-times.js';
import { planSlices } from '../../engine/planning/plan-cache.js';
import { planWorkerSlices } from '../../engine/planning/plan-sliced-cache.js';
import { DEMO_LOSSES, lossMeasuredOn, type MeasuredModel, slicedOffers } from '../../engine/planning/sliced-offers.js';
import { NATIVE_BYTE_TOOLS } from '../../packs/packing/native-tools.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { readQuality } from '../../shared/settings/quality.js';
import { pack } from './tiny-pack.js';

const TIMES = {
  load: {
    signMantissaReadMs: 1,
    exponentReadMs: 1,
    decompressMs: 0,
    compressionRatio: 1,
    threads: 1,
    shards: 1,
    tensors: 3,
  },
  costs: { executeMs: 0.1, startMs: 0, interference: 0 },
};
const DEMO = join(packageRoot(), 'models', 'demo');

describe('the offers of sliced experts beside a plan', function () {
  this.timeout(60_000);

  it('name a quality, and the bytes of a weight that it reads', () => {
    const offers = slicedOffers(2, 'demo model');
    for (const { quality } of offers) assert.ok('quality' in readQuality(quality), quality);
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

  it('have no share of critical executions where a token has one expert', () => {
    const qualities = slicedOffers(1, 'demo model').map(({ quality }) => quality);
    assert.deepEqual(qualities.slice(0, 2), ['sliced(8,4)', 'sliced(8,4,low)']);
    assert.ok(!qualities.some((quality) => quality.includes('critical')));
  });

  it('have the losses of the demo model, and say whether it is this one, as a checkpoint or a pack', async () => {
    const losses = slicedOffers(2, 'this model').map(({ quality, loss }) => [quality, loss]);
    assert.deepEqual(losses, Object.entries(DEMO_LOSSES));
    assert.equal(await lossMeasuredOn(DEMO), 'this model');
    const root = await mkdtemp(join(tmpdir(), 'odmoe-offers-'));
    try {
      const packed = join(root, 'packed');
      await pack(DEMO, packed, { tools: NATIVE_BYTE_TOOLS });
      assert.equal(await lossMeasuredOn(packed), 'this model');
      const other = join(root, 'other');
      await cp(DEMO, other, { recursive: true });
      const weights = await readFile(join(other, 'model.safetensors'));
      weights.writeUInt8(weights.readUInt8(weights.length - 1) ^ 1, weights.length - 1);
      await writeFile(join(other, 'model.safetensors'), weights);
      assert.equal(await lossMeasuredOn(other), 'demo model');
      assert.equal(await lossMeasuredOn(root), 'demo model');
    } finally {
      await rm(root, { recursive: true, force: true });
    }
  });

  it('have slots for both slices, except where no execution reads lower ones', () => {
    const forms = new Map(slicedOffers(2, 'demo model').map(({ quality, form }) => [quality, form]));
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
    for (const { form } of slicedOffers(2, 'demo model')) {
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

  it('leave the places in a cache that a worker has for lower slices that are not kept', () => {
    const request = { layers: 2, experts: 4, activated: 1, counts: null };
    const sizes = { entryBytes: { full: 9, exponent: 5, signMantissa: 4 }, lowerBytes: 4 };
    const held = (budgetBytes: number, lowerBytes: number | null = 4): number[] => {
      const { totals } = planWorkerSlices({ ...request, budgetBytes }, { ...sizes, lowerBytes }, 2, TIMES);
      return [totals.full, totals.exponent];
    };
    // A worker of this model has two slots, and so two places of 4 bytes.
    assert.deepEqual(held(48), [0, 8], 'all upper slices, and no room for lower ones');
    assert.deepEqual(held(48 + 8), [2, 6]);
    assert.deepEqual(held(72 + 8), [8, 0]);
    assert.deepEqual(held(15), [0, 2], 'at most half of the memory is for places');
    assert.deepEqual(held(8), [0, 0], 'too small for a cache');
    assert.deepEqual(held(45, null), [5, 0], 'no lower slices are loaded');
  });

  it('are planned with a cache of slices, which holds lower ones only beside all upper ones', () => {
    const planned = (budgetBytes: number, lowerBytes = 4) =>
      planSlices(
        { budgetBytes, layers: 2, experts: 4, activated: 1, counts: null },
        { upperBytes: 5, lowerBytes },
        TIMES,
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

  it('have losses that docs/results.md lists, and the newest recorded run where there is one', async () => {
    const document = await readFile(join(packageRoot(), 'docs', 'results.md'), 'utf8');
    const listed = [...document.matchAll(/^\| (sliced\([^|]*\)) \| [a-z\d(),]+ \| (\d\.\de-\d) \|$/gm)];
    assert.deepEqual(
      listed.map(([, quality, loss]) => [quality, Number(loss)]),
      Object.entries(DEMO_LOSSES),
    );
    for (const [quality, recorded] of await recordedLosses()) {
      assert.equal(DEMO_LOSSES[quality]?.toExponential(1), recorded.toExponential(1), quality);
    }
  });

  it('are reported with their loss and the model that it was measured with', () => {
    const planned = (measuredOn: MeasuredModel): PlannedOffer[] =>
      slicedOffers(2, measuredOn).map((offer) => ({ offer, expertBytes: 1000, bytesShare: 0.5, speedup: 2 }));
    assert.deepEqual(offersObject(planned('demo model'))[2], {
      quality: 'sliced(8,4,low)',
      expertBytes: 1000,
      bytesShare: 0.5,
      speedup: 2,
      loss: 3.2e-4,
      lossMeasuredOn: 'demo model',
    });
    const [own, other] = (['this model', 'demo model'] as const).map((on) => offerLines(planned(on), '').join('\n'));
    assert.match(own ?? '', /low\) .* 50 % .*2\.00 times +3\.2e-4[\s\S]*measured it with this model\.$/);
    assert.match(other ?? '', /with odmoe's demo model\. It was not measured with this model/);
  });
});

interface LossRow {
  table: string;
  variant?: string;
  pair?: string;
  critical?: number;
  kl: number;
}

/** KL by quality, in the newest line of bench/history/slices.jsonl that measured it; none where no run did. */
async function recordedLosses(): Promise<[quality: string, kl: number][]> {
  const path = join(packageRoot(), 'bench', 'history', 'slices.jsonl');
  if (!existsSync(path)) return [];
  const lines = parseRunLines(await readFile(path, 'utf8'), path).map(({ figures }) => figures as unknown as LossRow[]);
  const measured = lines.findLast((rows) => rows.some(({ table }) => table === 'quality'));
  if (measured === undefined) return [];
  return ['8,4', '6,3', '4,2'].flatMap((pair): [string, number][] => {
    const ofVariant = (name: string): number =>
      requirePresent(
        measured.find(({ table, variant }) => table === 'quality' && variant === name),
        name,
      ).kl;
    const thetas = measured.filter((row) => row.table === 'theta' && row.pair?.includes(pair) === true);
    const distance = ({ critical = 0 }: (typeof measured)[number]): number => Math.abs(critical - 0.3);
    const [nearest] = thetas.sort((left, right) => distance(left) - distance(right));
    return [
      [`sliced(${pair})`, ofVariant(`asym${pair[0]}`)],
      [`sliced(${pair},critical=0.3)`, requirePresent(nearest, pair).kl],
      [`sliced(${pair},low)`, ofVariant(`centred(${pair})`)],
    ];
  });
}
