import assert from 'node:assert/strict';
import { setUpOf, type SimulateFlags } from '../../cli/client/simulation-flags.js';
import { searchSetUps } from '../../simulator/plan/search-set-ups.js';
import { DEFAULT_SET_UP } from '../../simulator/simulate/cluster-set-up.js';
import { simulateCluster } from '../../simulator/simulate/simulate-cluster.js';
import { FlatTrace, plainTimes } from './simulated-cluster-setting.js';

describe('the set-ups of a simulated cluster', () => {
  const search = (token: number) =>
    searchSetUps({
      asked: { workers: 4, slots: 1, cacheBytes: 0, prediction: { source: 'sep', layersAhead: 1 } },
      expertsPerToken: 1,
      periods: [{ token, keyValue: 1 }],
      measure: (setUp) => simulateCluster(plainTimes(4, 20), setUp, new FlatTrace(4, 6), { tokens: 7 }),
    });

  it('try drafts, and first of all the defaults', async () => {
    const { plain, tried } = await search(1);
    assert.deepEqual(plain.setUp, { ...DEFAULT_SET_UP, workers: 4 });
    assert.ok(tried.some(({ setUp }) => setUp.drafting.rows === 'auto'));
  });

  it('try no drafts where shadow does not get every token', async () => {
    assert.ok((await search(4)).tried.every(({ setUp }) => setUp.drafting.rows === 1));
  });

  it('take the drafts without a shadow that the daemons take, and refuse the others', () => {
    const flags = (changes: Partial<SimulateFlags>) =>
      ({ prediction: 'off', draftRows: 1, ...changes }) as SimulateFlags;
    assert.equal(setUpOf(flags({ draftRows: 'auto' })).drafting.rows, 'auto');
    for (const changes of [{ draftRows: 2 }, { optimistic: true }]) {
      assert.throws(() => setUpOf(flags(changes)), { code: 'USAGE' });
    }
  });
});
