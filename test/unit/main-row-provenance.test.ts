import assert from 'node:assert/strict';
import fc from 'fast-check';
import { GivenLogits } from '../../main-node/decode/cluster-sequence.js';
import { RowProvenance } from '../../main-node/pass/pass-member.js';

describe('main: the workers that took part in rows', () => {
  it('are, for the first n positions, those that ran any of them', () => {
    const uses = fc.array(fc.tuple(fc.constantFrom('a', 'b', 'c', 'd'), fc.nat(40)), { maxLength: 60 });
    fc.assert(
      fc.property(uses, fc.nat(41), (taken, positions) => {
        const provenance = new RowProvenance();
        for (const [id, position] of taken) provenance.took(id, position);
        const expected = (below: number): string[] =>
          [...new Set(taken.filter(([, position]) => position < below).map(([id]) => id))].sort();
        const part = provenance.upTo(positions);
        assert.deepEqual(part.workerIds.sort(), expected(positions));
        for (const id of ['a', 'b', 'c', 'd']) assert.equal(part.has(id), expected(positions).includes(id));
        assert.deepEqual(provenance.workerIds.sort(), expected(Infinity), 'the whole stays as it is');
        part.took('e', 0);
        assert.equal(provenance.has('e'), false, 'a fork has its own from then on');
      }),
    );
  });
});

describe('main: the logits that were given out', () => {
  const logits = (value: number): Float32Array => Float32Array.of(1, value, 3);

  it('are compared with the recomputed ones when this is due, from the first to the last', () => {
    const given = new GivenLogits();
    for (const position of [7, 8, 9]) given.note(position, logits(position));
    assert.equal(given.dueFrom, null);
    assert.equal(given.compare(8, logits(0)), true, 'nothing is to be compared yet');
    given.compareAll();
    assert.equal(given.dueFrom, 7);
    for (const position of [7, 8]) assert.equal(given.compare(position, logits(position)), true);
    assert.equal(given.compare(8, logits(8)), true, 'once more, as its pass failed');
    assert.equal(given.dueFrom, 9);
    assert.throws(() => given.compare(9, logits(0)), { code: 'WORKER_DISTRUSTED', message: /ask again/ });
    assert.equal(given.compare(9, logits(9)), true);
    assert.equal(given.dueFrom, null);
    assert.equal(given.compare(10, logits(10)), false, 'it was not given before');
  });

  it('are compared from the first again when another worker proves to lie meanwhile', () => {
    const given = new GivenLogits();
    for (const position of [0, 1]) given.note(position, logits(position));
    given.compareAll();
    given.compare(0, logits(0));
    given.compareAll();
    assert.equal(given.dueFrom, 0);
  });

  it('need no comparison where none were given out', () => {
    const given = new GivenLogits();
    given.compareAll();
    assert.equal(given.dueFrom, null);
    assert.equal(given.compare(0, logits(0)), false);
  });
});
