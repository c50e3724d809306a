import assert from 'node:assert/strict';
import { DraftBook, MAX_REMEMBERED_DRAFTS } from '../../main-node/decode/draft-book.js';
import type { DraftToken } from '../../shared/wire/messages.js';

const draft = (position: number, tokenId: number, changes: Partial<DraftToken> = {}): DraftToken => ({
  epoch: 1,
  sequence: 7,
  position,
  tokenId,
  branch: 0,
  passPosition: 10,
  runUs: 1000,
  ...changes,
});

describe('main: the draft book', () => {
  it('has as many consecutive drafts behind a position as are wanted', () => {
    const book = new DraftBook();
    for (const position of [11, 12, 14]) assert.equal(book.arrive(draft(position, position * 10), 10), true);
    assert.deepEqual(book.following(10, 8), { tokenIds: [110, 120], complete: false });
    assert.deepEqual(book.following(10, 1), { tokenIds: [110], complete: true });
    assert.deepEqual(book.following(12, 8), { tokenIds: [], complete: false });
    book.arrive(draft(13, 130), 10);
    assert.deepEqual(book.following(10, 8).tokenIds, [110, 120, 130, 140]);
  });

  it('leaves drafts that shadow made for a later pass to that pass', () => {
    const book = new DraftBook();
    book.arrive(draft(11, 1), 10);
    book.arrive(draft(12, 2, { passPosition: 12 }), 10);
    book.arrive(draft(13, 3, { passPosition: 12 }), 10);
    assert.deepEqual(book.following(10, 8), { tokenIds: [1], complete: true });
    // Main began the pass before with fewer rows, so a draft that was meant for that pass is used for this one.
    assert.deepEqual(book.following(12, 8), { tokenIds: [3], complete: false });
  });

  it('settles each position once and drops the drafts behind a wrong one', () => {
    const book = new DraftBook();
    for (const position of [11, 12, 13]) book.arrive(draft(position, position), 10);
    assert.equal(book.settle(10, 5), 'none');
    assert.equal(book.settle(11, 11), 'right');
    assert.equal(book.settle(11, 11), 'none');
    assert.equal(book.branch, 0);
    assert.equal(book.settle(12, 99), 'wrong');
    assert.equal(book.branch, 1);
    assert.deepEqual(book.following(12, 8).tokenIds, []);
  });

  it('ignores an older branch and past positions, and is bounded', () => {
    const book = new DraftBook();
    book.provedWrong();
    assert.equal(book.arrive(draft(11, 1), 10), false);
    assert.equal(book.arrive(draft(11, 1, { branch: 1 }), 10), true);
    assert.equal(book.arrive(draft(9, 1, { branch: 1 }), 10), false);
    assert.equal(book.arrive(draft(10 + MAX_REMEMBERED_DRAFTS, 1, { branch: 1 }), 10), false);
    assert.equal(book.arrive(draft(9 + MAX_REMEMBERED_DRAFTS, 1, { branch: 1 }), 10), true);
  });

  it('drops drafts that shadow takes back, and takes the new ones', () => {
    const book = new DraftBook();
    for (const position of [11, 12, 13]) book.arrive(draft(position, position), 10);
    book.restart(12);
    assert.deepEqual(book.following(10, 8).tokenIds, [11]);
    book.arrive(draft(12, 50), 10);
    assert.deepEqual(book.following(10, 8).tokenIds, [11, 50]);
    book.clear();
    assert.deepEqual(book.following(10, 8).tokenIds, []);
  });
});
