import assert from 'node:assert/strict';
import { ProcessCounts } from '../../engine/daemon/process-counts.js';
import { liveIn, Living, onAbort } from '../../shared/base/runtime/living.js';

class Holder {
  readonly entries = new Set(['first']);
}

describe('what a daemon tells of what it has open', () => {
  afterEach(() => {
    liveIn(null);
  });

  it('is what lives, handles of devices, and the entries of its collections, looked at once a second at most', () => {
    liveIn(new Living());
    let nowMs = 5000;
    const holder = new Holder();
    const counts = new ProcessCounts(
      { nowMs: () => nowMs },
      () => [holder],
      () => ({ sequences: 3 }),
    );
    const told = (name: string): number | undefined => counts.reply().counts.find((one) => one.name === name)?.count;
    onAbort(new AbortController().signal, () => undefined);
    assert.deepEqual(
      ['living abort listener', 'living timer', 'handles sequences', 'entries Holder.entries'].map(told),
      [1, 0, 3, 1],
    );
    holder.entries.add('second');
    nowMs += 999;
    assert.equal(told('entries Holder.entries'), 1);
    nowMs += 1;
    assert.equal(told('entries Holder.entries'), 2);
  });
});
