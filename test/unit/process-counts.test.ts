import assert from 'node:assert/strict';
import { ProcessCounts } from '../../engine/daemon/process-counts.js';
import { liveIn, Living, onAbort } from '../../shared/base/runtime/living.js';

class Holder {
  readonly entries = new Set(['first']);
}

describe('the report of a daemon on its open resources', () => {
  afterEach(() => {
    liveIn(null);
  });

  it('lists live objects, device handles and collection entries, at most once a second', () => {
    liveIn(new Living());
    let nowMs = 5000;
    const holder = new Holder();
    const counts = new ProcessCounts(
      { nowMs: () => nowMs },
      () => [holder],
      () => ({ sequences: 3 }),
    );
    const countOf = (name: string): number | undefined => counts.reply().counts.find((one) => one.name === name)?.count;
    onAbort(new AbortController().signal, () => undefined);
    assert.deepEqual(
      ['living abort listener', 'living timer', 'handles sequences', 'entries Holder.entries'].map(countOf),
      [1, 0, 3, 1],
    );
    holder.entries.add('second');
    nowMs += 999;
    assert.equal(countOf('entries Holder.entries'), 1);
    nowMs += 1;
    assert.equal(countOf('entries Holder.entries'), 2);
  });
});
