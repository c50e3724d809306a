import assert from 'node:assert/strict';
import type { BatchMember } from '../../main-node/batching/batch-member.js';
import { RowProvenance } from '../../main-node/pass/pass-member.js';
import { SAVED_FORK_POSITIONS, PrefixStore, type RowsToKeep } from '../../main-node/room/prefix-store.js';
import type { Sequence } from '../../native/index.js';

/** A sequence without memory. It counts the sequences and forks that are not disposed. */
class CountedSequence {
  static open = 0;
  disposed = false;

  constructor(
    readonly length: number,
    readonly oldestPosition = 0,
  ) {
    CountedSequence.open += 1;
  }

  fork(length: number): CountedSequence {
    assert.ok(!this.disposed && length <= this.length && length >= this.oldestPosition);
    return new CountedSequence(length, this.oldestPosition);
  }

  dispose(): void {
    assert.ok(!this.disposed, 'let go twice');
    this.disposed = true;
    CountedSequence.open -= 1;
  }

  get sequence(): Sequence {
    return this as unknown as Sequence;
  }
}

const LENGTH = 32;
const tokensOf = (token: number, length = LENGTH): number[] => Array.from({ length }, () => token);

function rows(id: number, { length = LENGTH, oldest = 0, worker = 'w' } = {}): RowsToKeep {
  const provenance = new RowProvenance();
  provenance.took(worker, 0);
  const { sequence } = new CountedSequence(length, oldest);
  return { id, sequence, tokenIds: tokensOf(id, length), provenance };
}

describe('stored rows of common prefixes', () => {
  let store: PrefixStore;

  beforeEach(() => {
    CountedSequence.open = 0;
    store = new PrefixStore();
  });

  afterEach(() => {
    store.dispose();
    assert.equal(CountedSequence.open, 0, 'all memory is given back');
  });

  /** The ids whose rows are still retained. */
  const keptOf = (...ids: number[]): number[] =>
    ids.filter((id) => {
      const shared = store.fork(tokensOf(id), LENGTH, []);
      shared?.sequence.dispose();
      return shared !== null;
    });
  const use = (id: number): void => store.fork(tokensOf(id), LENGTH, [])?.sequence.dispose();

  it('are dropped in the order of their last use', () => {
    for (const id of [1, 2, 3]) store.keep(rows(id));
    use(1);
    store.keep(rows(2));
    assert.ok(store.dropFirst());
    assert.deepEqual(keptOf(3), []);
    assert.ok(store.dropFirst());
    assert.deepEqual(keptOf(1, 2), [2]);
    assert.ok(store.dropFirst());
    assert.ok(!store.dropFirst());
  });

  it('are not used where a running sequence has more of them', () => {
    for (const id of [1, 2]) store.keep(rows(id));
    const running = new CountedSequence(2 * LENGTH);
    const member = {
      id: 9,
      sequence: running.sequence,
      tokenIds: tokensOf(1, 2 * LENGTH),
      written: 2 * LENGTH,
      provenance: new RowProvenance(),
    } as unknown as BatchMember;
    const shared = store.fork(tokensOf(1, 2 * LENGTH), 2 * LENGTH, [member]);
    assert.deepEqual([shared?.from, shared?.positions], [9, 2 * LENGTH]);
    shared?.sequence.dispose();
    running.dispose();
    assert.ok(store.dropFirst());
    assert.deepEqual(keptOf(1, 2), [2]);
  });

  it('include saved forks, where a sequence can later be forked only near its end; these go first', () => {
    store.keep(rows(1));
    const length = 2 * SAVED_FORK_POSITIONS + 5;
    const going = rows(2, { length, oldest: SAVED_FORK_POSITIONS + 1 });
    store.passBy(going, 10);
    assert.equal(store.size, 2, 'one saved fork would begin where it cannot be forked any more');
    store.passBy(going, 2 * SAVED_FORK_POSITIONS);
    assert.equal(store.size, 2, 'it has come by no further end');
    going.sequence.dispose();
    assert.ok(store.dropFirst());
    assert.deepEqual(keptOf(1), [1]);
  });

  it('are dropped where a worker that proves to lie took part in them, or their request fails', () => {
    store.keep(rows(1, { worker: 'honest' }));
    store.keep(rows(2, { worker: 'liar' }));
    store.keep(rows(3, { worker: 'honest' }));
    assert.deepEqual(store.workerIds, new Set(['honest', 'liar']));
    store.distrust('liar');
    assert.deepEqual(keptOf(1, 2, 3), [1, 3]);
    store.forget(3);
    assert.deepEqual(keptOf(1, 3), [1]);
  });
});
