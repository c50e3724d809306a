/** Damaged slices that main does not mend: a worker waits for main before it gives up. */
import assert from 'node:assert/strict';
import { ALL, CRITICAL, SlicedSetting } from '../../integration/worker-sliced-setting.js';

describe('worker daemon: damaged slices', function () {
  this.timeout(120_000);
  const sliced = new SlicedSetting();

  it('fails the executes that read a damaged lower slice, by its words, and goes on with the upper one', async () => {
    const main = await sliced.connect(await sliced.start(CRITICAL, sliced.damaged('lower', 'lower', 0, 5)));
    const error = await main.error(sliced.request(0, 5, 0));
    assert.equal(error.code, 'PACK_CORRUPT');
    assert.match(error.message, /^The lower slices of expert 5 of layer 0 could not be loaded: /);
    await sliced.check(main, 0, 5, 1, ALL);
    await sliced.check(main, 0, 6, 2);
    const status = await main.status('the damage is counted', ({ damagedExperts }) => damagedExperts === 1);
    assert.equal(status.damagedExperts, 1);
  });

  it('fails the executes of an expert whose upper slice is damaged', async () => {
    const main = await sliced.connect(await sliced.start('sliced(8,4,low)', sliced.damaged('upper', 'upper', 0, 5)));
    const error = await main.error(sliced.request(0, 5, 0, ALL));
    assert.equal(error.code, 'PACK_CORRUPT');
    assert.match(error.message, /^Expert 5 of layer 0 could not be loaded: /);
    await sliced.check(main, 0, 6, 1, ALL);
  });
});
