import assert from 'node:assert/strict';
import fc from 'fast-check';
import { drainState, drainWords, othersLackBytes, usedWorkers } from '../../shared/decisions/draining/drain-state.js';

describe('the state of a drained node', () => {
  it('is that it may go when main does not use it and it owes nothing, and only then', () => {
    fc.assert(
      fc.property(fc.boolean(), fc.nat(5), (isUsed, openExperts) => {
        assert.equal(drainState({ isUsed, openExperts }) === 'may go', !isUsed && openExperts === 0);
      }),
    );
    assert.equal(drainState({ isUsed: true, openExperts: 0 }), 'needed');
    assert.equal(drainState({ isUsed: false, openExperts: 2 }), 'finishing');
  });

  it('is told in words, also by a main of a later release', () => {
    const words = (state: string, openExperts = 0): string => drainWords({ state, openExperts });
    assert.match(words('may go'), /may go: nothing/);
    assert.match(words('finishing', 1), /ends 1 expert first/);
    assert.match(words('finishing', 3), /ends 3 experts first/);
    assert.match(words('needed'), /no other worker is there .* so start one first/);
    assert.equal(words('asleep'), 'is draining: asleep');
    assert.equal(
      drainWords({ state: 'may go', openExperts: 0 }, 12e6),
      'is drained; others fetch 12.0 MB of its experts first, from it, too, as long as it runs',
    );
    for (const lacked of [0, null]) {
      assert.match(drainWords({ state: 'may go', openExperts: 0 }, lacked), /may go: nothing/);
    }
    assert.match(drainWords({ state: 'finishing', openExperts: 1 }, 12e6), /ends 1 expert first/);
  });

  it('counts what the other workers still fetch, and nothing of its own', () => {
    const node = (id: string, fetchNeededBytes: number, fetchHeldBytes: number) => ({
      identity: { id },
      fetchNeededBytes,
      fetchHeldBytes,
    });
    const w1 = { id: 'w1', role: 'worker' };
    const nodes = [node('main', 0, 0), node('w1', 50, 10), node('w2', 30, 10), node('w3', 40, 45), node('w4', 7, 0)];
    assert.equal(othersLackBytes(nodes, w1), 27);
    assert.equal(othersLackBytes(nodes.slice(0, 2), w1), null);
    assert.equal(othersLackBytes([node('w3', 40, 40)], w1), 0);
    assert.equal(othersLackBytes(nodes, { id: 'shadow', role: 'shadow' }), null);
  });
});

describe('the workers that get work', () => {
  const ids = fc.uniqueArray(fc.nat(20));

  it('are those that are not drained, in their order; else those that have work, and else all', () => {
    fc.assert(
      fc.property(ids, ids, ids, (workers, drained, working) => {
        const isDrained = (worker: number): boolean => drained.includes(worker);
        const hasWork = (worker: number): boolean => working.includes(worker);
        const used = usedWorkers(workers, isDrained, hasWork);
        assert.equal(used.length === 0, workers.length === 0, 'work is done as long as a worker is there');
        const left = workers.filter((worker) => !isDrained(worker));
        if (left.length > 0) assert.deepEqual(used, left);
        else if (workers.some(hasWork)) assert.deepEqual(used, workers.filter(hasWork));
        else assert.deepEqual(used, workers);
      }),
    );
  });
});
