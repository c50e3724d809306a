import assert from 'node:assert/strict';
import { admitted, cohort, isWaiting, type FetchingMember } from '../../main-node/cluster/fetching-workers.js';

function member(id: string, state: Partial<FetchingMember> = {}): FetchingMember {
  return { id, ready: false, late: false, troubled: false, ...state };
}
const ids = (members: readonly FetchingMember[]): string[] => members.map(({ id }) => id);

describe('main: fetching workers come into the placement', () => {
  it('together, when all are ready', () => {
    const ready = member('a', { ready: true });
    assert.deepEqual(ids(admitted([ready, member('b')])), []);
    assert.ok(isWaiting([ready, member('b')]));
    assert.deepEqual(ids(admitted([ready, member('b', { ready: true })])), ['a', 'b']);
    assert.ok(!isWaiting([ready, member('b', { ready: true })]));
    assert.deepEqual(ids(admitted([])), []);
    assert.ok(!isWaiting([member('a'), member('b')]));
  });

  it('without late or blocked ones, which follow when they are ready', () => {
    const members = [member('a', { ready: true }), member('b', { late: true }), member('c', { troubled: true })];
    assert.deepEqual(ids(cohort(members)), ['a']);
    assert.deepEqual(ids(admitted(members)), ['a']);
    const later = [member('b', { late: true, ready: true }), member('c', { troubled: true })];
    assert.deepEqual(ids(admitted(later)), ['b']);
    assert.deepEqual(ids(admitted([member('b', { late: true })])), []);
  });
});
