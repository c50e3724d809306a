import assert from 'node:assert/strict';
import fc from 'fast-check';
import { drainState, drainWords, usedWorkers } from '../../shared/decisions/draining/drain-state.js';

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
    assert.match(words('needed'), /only worker that is there, so start another one/);
    assert.equal(words('asleep'), 'is draining: asleep');
  });
});

describe('the workers that get work', () => {
  it('are those that are not drained, in their order; all, where no other is there', () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.nat(20)), fc.uniqueArray(fc.nat(20)), (workers, drained) => {
        const isDrained = (worker: number): boolean => drained.includes(worker);
        const used = usedWorkers(workers, isDrained);
        assert.equal(used.length === 0, workers.length === 0, 'work is done as long as a worker is there');
        if (workers.every(isDrained)) assert.deepEqual(used, workers);
        else
          assert.deepEqual(
            used,
            workers.filter((worker) => !isDrained(worker)),
          );
      }),
    );
  });
});
