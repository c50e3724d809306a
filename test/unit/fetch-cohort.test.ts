import assert from 'node:assert/strict';
import { admitted, cohort, isWaiting, type FetchingWorker } from '../../main-node/cluster/fetching-workers.js';

function worker(id: string, state: Partial<FetchingWorker> = {}): FetchingWorker {
  return { id, ready: false, late: false, troubled: false, ...state };
}
const ids = (workers: readonly FetchingWorker[]): string[] => workers.map(({ id }) => id);

describe('main: fetching workers come into the placement', () => {
  it('together, when all are ready', () => {
    const ready = worker('a', { ready: true });
    assert.deepEqual(ids(admitted([ready, worker('b')])), []);
    assert.ok(isWaiting([ready, worker('b')]));
    assert.deepEqual(ids(admitted([ready, worker('b', { ready: true })])), ['a', 'b']);
    assert.ok(!isWaiting([ready, worker('b', { ready: true })]));
    assert.deepEqual(ids(admitted([])), []);
    assert.ok(!isWaiting([worker('a'), worker('b')]));
  });

  it('without late or blocked ones, which follow when they are ready', () => {
    const workers = [worker('a', { ready: true }), worker('b', { late: true }), worker('c', { troubled: true })];
    assert.deepEqual(ids(cohort(workers)), ['a']);
    assert.deepEqual(ids(admitted(workers)), ['a']);
    const later = [worker('b', { late: true, ready: true }), worker('c', { troubled: true })];
    assert.deepEqual(ids(admitted(later)), ['b']);
    assert.deepEqual(ids(admitted([worker('b', { late: true })])), []);
  });
});
