import assert from 'node:assert/strict';
import fc from 'fast-check';
import { ACCEPTANCE_DRAFTS, DraftAcceptance, placeClass } from '../../main-node/drafting/draft-acceptance.js';

describe('drafting: how often drafts prove right', () => {
  it('is the assumption at first', () => {
    const acceptance = new DraftAcceptance([0.3, 0.8], new DraftAcceptance([0.3, 0.8]));
    assert.equal(acceptance.chance(0, 0), 0.3);
    assert.equal(acceptance.chance(1, 7), 0.8);
  });

  it('follows the drafts of the kind and the place alone', () => {
    const acceptance = new DraftAcceptance([0.5, 0.5]);
    for (let draft = 0; draft < 4 * ACCEPTANCE_DRAFTS; draft++) {
      acceptance.verified(0, 0, true);
      acceptance.verified(0, 3, false);
    }
    assert.ok(acceptance.chance(0, 0) > 0.95);
    assert.ok(acceptance.chance(0, 2) < 0.05, 'the third and fourth are alike');
    assert.equal(acceptance.chance(0, 1), 0.5);
    assert.equal(acceptance.chance(1, 0), 0.5);
  });

  it('of one answer is believed more the more of its drafts were verified, and teaches the next answer', () => {
    const all = new DraftAcceptance([0.5]);
    const wrong = new DraftAcceptance([0.5], all);
    for (let draft = 0; draft < ACCEPTANCE_DRAFTS; draft++) wrong.verified(0, 0, false);
    assert.ok(wrong.chance(0, 0) < 0.01);
    const next = new DraftAcceptance([0.5], all);
    assert.ok(next.chance(0, 0) < 0.2);
    next.verified(0, 0, true);
    next.verified(0, 0, true);
    assert.ok(next.chance(0, 0) > 0.4);
  });

  it('stays a probability', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.nat(1), fc.nat(14), fc.boolean()), { maxLength: 100 }), (drafts) => {
        const all = new DraftAcceptance([0.2, 0.9]);
        const acceptance = new DraftAcceptance([0.2, 0.9], all);
        for (const [kind, place, right] of drafts) acceptance.verified(kind, place, right);
        for (const of of [all, acceptance])
          for (let place = 0; place < 15; place++)
            for (const kind of [0, 1])
              assert.ok(of.chance(kind, place) >= 0 && of.chance(kind, place) <= 1, `${of.chance(kind, place)}`);
      }),
    );
  });

  it('has no class that falls with the place', () => {
    for (let place = 1; place < 16; place++) assert.ok(placeClass(place) >= placeClass(place - 1));
  });
});
