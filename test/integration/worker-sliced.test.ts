/** A worker that computes with slices: real slots and files, and the bits that one process computes with the same slices. */
import assert from 'node:assert/strict';
import { cpSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { refusal } from '../unit/tiny-pack.js';
import { waitUntil } from './harness/wait-until.js';
import { ALL, CRITICAL, SlicedSetting } from './worker-sliced-setting.js';
import { hiddenStates } from './worker-test-setting.js';

describe('worker daemon: sliced experts', function () {
  this.timeout(120_000);
  const sliced = new SlicedSetting();

  it('computes all of its experts with both slices, as one process does', async () => {
    const main = await sliced.connect(await sliced.start('sliced(8,4)'));
    for (let layer = 0; layer < sliced.pack.shape.expertLayers; layer += 1) {
      for (const expert of [0, 3]) await sliced.check(main, layer, expert, layer);
    }
    const status = await main.status(
      'all loads are reported',
      ({ executions }) => executions === 2 * sliced.pack.shape.expertLayers,
    );
    const bytes = sliced.sliceBytes('upper', 0, 0) + sliced.sliceBytes('lower', 0, 0);
    assert.ok(status.storageReadBytes >= status.loads * bytes && status.storageReadBytes < 2 * status.loads * bytes);
  });

  it('reads no lower slice where all rows read upper ones alone, with files of upper slices alone', async () => {
    const directory = join(sliced.root, 'upper-alone');
    cpSync(sliced.sliced, directory, { recursive: true });
    for (const { name } of sliced.slices.manifest.files) if (name.includes('lower')) rmSync(join(directory, name));
    const main = await sliced.connect(await sliced.start('sliced(8,4,low)', directory));
    for (let layer = 0; layer < sliced.pack.shape.expertLayers; layer += 1)
      await sliced.check(main, layer, 1, layer, ALL);
    const status = await main.status('the loads are reported', ({ loads }) => loads === sliced.pack.shape.expertLayers);
    const upperBytes = sliced.sliceBytes('upper', 0, 1);
    assert.ok(status.storageReadBytes >= status.loads * upperBytes);
    assert.ok(status.storageReadBytes < status.loads * (upperBytes + sliced.sliceBytes('lower', 0, 1)));
  });

  it('adds the lower slice where a row reads it, and mixes readings of one expert row by row', async () => {
    const main = await sliced.connect(await sliced.start(CRITICAL));
    let position = 0;
    for (const upper of [ALL, [], [1], [0, 2], [2]]) await sliced.check(main, 0, 2, position++, upper);
    const last = sliced.request(1, 4, position, []);
    const mixed = [main.result({ ...last, last: false }), main.result({ ...last, upper: ALL })];
    const [both, upper] = await Promise.all(mixed);
    assert.deepEqual(Buffer.from(both?.output ?? []), await sliced.expected(1, 4, position, []));
    assert.deepEqual(Buffer.from(upper?.output ?? []), await sliced.expected(1, 4, position, ALL));
    assert.notDeepEqual(both?.output, upper?.output);
  });

  it('has both slices of a critical expert before main asks for it, and the upper ones alone of the others', async () => {
    const main = await sliced.connect(await sliced.start(CRITICAL));
    main.predict({ layer: 0, experts: [3, 4], critical: [4] });
    const wanted =
      sliced.sliceBytes('upper', 0, 3) + sliced.sliceBytes('upper', 0, 4) + sliced.sliceBytes('lower', 0, 4);
    await main.status('the slices are loaded', ({ storageReadBytes }) => storageReadBytes >= wanted);
    const critical = await main.result(sliced.request(0, 4, 0));
    assert.equal(critical.wasLoaded, true);
    const other = await main.result(sliced.request(0, 3, 0));
    assert.equal(other.wasLoaded, false, 'its lower slice comes when a row reads it');
  });

  for (const quality of ['sliced(8,4)', CRITICAL, 'sliced(8,4,low)']) {
    it(`caches slices within the memory budget, and computes the same with them: ${quality}`, async () => {
      const readings = quality === CRITICAL ? [ALL, [], [1], []] : [quality.includes('low') ? ALL : []];
      const plain = await sliced.connect(await sliced.start(quality));
      const { deviceMemoryUsedBytes, slotBytes } = await plain.status('a status');
      await plain.close();
      const cacheBytes = 7 * slotBytes;
      const memoryBudgetBytes = deviceMemoryUsedBytes + cacheBytes;
      const worker = { cacheBytes, cachePolicy: 'sliced' } as const;
      const more = { worker, device: { memoryBudgetBytes } };
      const main = await sliced.connect(await sliced.start(quality, sliced.sliced, 2, more));
      let position = 0;
      // First few experts, whose slices all fit; then more of them, whose upper slices displace lower ones and each other.
      for (const experts of [3, 3, 3, 8, 8, 3, 3]) {
        for (let expert = 0; expert < experts; expert += 1) {
          const upper = readings[position % readings.length] ?? assert.fail();
          for (const layer of experts === 8 ? [0, 1, 2] : [0]) await sliced.check(main, layer, expert, position, upper);
          position += 1;
        }
      }
      const status = await main.status('all have run', ({ executions }) => executions === 15 + 48);
      assert.ok(status.cache !== null);
      const { kept, hits } = status.cache;
      assert.ok(hits.full >= 3 && hits.full + hits.exponent < status.executions, JSON.stringify(status.cache));
      assert.ok(kept.full + kept.exponent > 7 || quality.includes('low'), 'more experts than whole ones would fit');
      assert.ok(status.deviceMemoryHighWaterBytes <= memoryBudgetBytes);
      assert.equal(status.slots, 2);
    });
  }

  it('refuses rows that read what it does not have, and serves the next ones', async () => {
    const low = await sliced.connect(await sliced.start('sliced(8,4,low)'));
    const error = await low.error(sliced.request(0, 0, 0, [0, 1]));
    assert.equal(error.code, 'PROTOCOL_VIOLATION');
    assert.match(error.message, /lower slices/);
    await sliced.check(low, 0, 0, 0, ALL);
    const exact = await sliced.workers.connectMain(await sliced.workers.start());
    const { hiddenSize } = sliced.workers.shape;
    const refused = await exact.error({
      layer: 0,
      expert: 0,
      upper: [0],
      hiddenSize,
      hidden: hiddenStates(1, hiddenSize),
    });
    assert.equal(refused.code, 'PROTOCOL_VIOLATION');
    assert.match(refused.message, /computes experts exactly/);
  });

  it('names its quality and its slices to main', async () => {
    const main = await sliced.workers.connect(await sliced.start('sliced(8,4,low)'));
    assert.deepEqual([main.own.quality, main.own.slicesDigest], ['sliced(8,4,low)', sliced.slices.digest]);
  });

  it('does not start on a pack without the slices, and says how to make them', async () => {
    await assert.rejects(
      sliced.start('sliced(8,4)', join(sliced.root, 'lossless')),
      refusal('PACK_INCOMPLETE', /has no slices.*odmoe pack .* --slices 8,4/),
    );
    await assert.rejects(sliced.start('sliced(6,3)'), refusal('USAGE', /has slices \(8,4\).*--slices 6,3/));
    await assert.rejects(sliced.start('sliced(8,4,critical=0.6)'), (thrown: unknown) => {
      assert.ok(thrown instanceof OdmoeError);
      assert.match(thrown.message, /theta/);
      return true;
    });
  });

  it('closes nothing too early: a worker stops while the lower slice of an expert loads', async () => {
    const node = await sliced.start(CRITICAL);
    const main = await sliced.connect(node);
    main.predict({ layer: 0, experts: [1, 2], critical: [1, 2] });
    await waitUntil('the worker has taken the prediction', () => (node.openCounts()['expectations'] ?? 0) > 0);
    await node.stop();
  });
});
