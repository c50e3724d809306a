import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  LEAST_UNTIL_RETRY,
  MakingCosts,
  MOST_UNTIL_RETRY,
  passesUntilRetry,
  RETRY_SHARE,
} from '../../main-node/drafting/making-costs.js';
import {
  chooseDrafts,
  combineDrafts,
  fastestDrafts,
  type ProposedDraft,
} from '../../main-node/drafting/choose-drafts.js';

const draftsOf = (chances: readonly number[]) => chances.map((chance) => ({ chance }));

const proposal = (maker: ProposedDraft['maker'], ...drafts: readonly (readonly [number, number])[]): ProposedDraft[] =>
  drafts.map(([tokenId, chance]) => ({ tokenId, chance, maker }));

const chances = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 15 });
const line = fc.record({
  passMs: fc.double({ min: 0.1, max: 1000, noNaN: true }),
  rowMs: fc.double({ min: 0, max: 1000, noNaN: true }),
});
const others = fc.integer({ min: 0, max: 16 });

describe('drafting: the number of drafts of a pass', () => {
  it('is that with the most tokens a second', () => {
    fc.assert(
      fc.property(chances, line, others, (given, { passMs, rowMs }, beside) => {
        const rate = (count: number): number => {
          let [tokens, reached] = [1 + beside, 1];
          for (const chance of given.slice(0, count)) tokens += reached *= chance;
          return tokens / (passMs + (beside + count) * rowMs);
        };
        const chosen = chooseDrafts(draftsOf(given), { passMs, rowMs }, beside);
        for (let count = 0; count <= given.length; count++)
          assert.ok(rate(count) <= rate(chosen) * (1 + 1e-12), `${count} drafts are faster than ${chosen}`);
      }),
    );
  });

  it('falls with the time in which drafts are made', () => {
    fc.assert(
      fc.property(
        chances,
        line,
        others,
        fc.double({ min: 0, max: 100, noNaN: true }),
        (given, costs, beside, draftMs) => {
          const free = fastestDrafts(given, costs, beside, 0);
          const made = fastestDrafts(given, costs, beside, draftMs);
          assert.ok(made.rate <= free.rate && made.count <= given.length);
          assert.equal(free.count, chooseDrafts(draftsOf(given), costs, beside));
          const plain = (1 + beside) / (costs.passMs + beside * costs.rowMs);
          assert.equal(made.rate > plain, made.count > 0);
        },
      ),
    );
    assert.equal(fastestDrafts([0.9, 0.9], { passMs: 10, rowMs: 0 }, 0, 3).count, 2);
    assert.equal(fastestDrafts([0.9, 0.9], { passMs: 10, rowMs: 0 }, 0, 9).count, 0);
  });

  it('is none where a row costs more than its chance, and all where rows are free', () => {
    assert.equal(chooseDrafts(draftsOf([0.5, 0.9]), { passMs: 10, rowMs: 8 }, 0), 0);
    assert.equal(chooseDrafts(draftsOf([0.5, 0.9]), { passMs: 10, rowMs: 0 }, 0), 2);
    assert.equal(chooseDrafts([], { passMs: 10, rowMs: 0 }, 0), 0);
  });

  it('falls where others wait for the drafts, too', () => {
    const costs = { passMs: 10, rowMs: 2 };
    assert.equal(chooseDrafts(draftsOf([0.4]), costs, 0), 1);
    assert.equal(chooseDrafts(draftsOf([0.4]), { passMs: 2, rowMs: 2 }, 7), 0);
  });
});

describe('drafting: the costs of drafts', () => {
  it('are the middle of the latest ones for each draft', () => {
    const costs = new MakingCosts();
    assert.equal(costs.draftMs, 0);
    costs.made(2, 10);
    assert.equal(costs.draftMs, 5);
    costs.made(1, 1000);
    assert.equal(costs.draftMs, 5, 'a single slow one decides nothing');
    for (let times = 0; times < 8; times += 1) costs.made(1, 7);
    assert.equal(costs.draftMs, 7);
  });

  it('say when a source that does not pay is asked again: within a share of the time, but not never', () => {
    const ms = fc.double({ min: 0.1, max: 1000, noNaN: true });
    fc.assert(
      fc.property(ms, ms, (draftMs, passMs) => {
        const passes = passesUntilRetry(draftMs, passMs);
        assert.ok(passes >= LEAST_UNTIL_RETRY && passes <= MOST_UNTIL_RETRY);
        if (passes < MOST_UNTIL_RETRY) assert.ok(draftMs / passes <= RETRY_SHARE * passMs * (1 + 1e-9));
      }),
    );
  });
});

describe('drafting: drafts of several sources', () => {
  it('are those of the surest one', () => {
    const lookup = proposal('lookup', [1, 0.5], [2, 0.5]);
    const heads = proposal('mtp', [7, 0.8]);
    assert.deepEqual(combineDrafts([lookup, heads], 4), heads);
    assert.deepEqual(combineDrafts([heads, lookup], 4), heads);
    assert.deepEqual(combineDrafts([lookup, []], 4), lookup);
    assert.deepEqual(combineDrafts([], 4), []);
  });

  it('go on with another source that begins alike', () => {
    const forced = proposal('forced', [5, 1]);
    const lookup = proposal('lookup', [5, 0.5], [6, 0.6], [7, 0.7]);
    const [first, ...rest] = combineDrafts([forced, lookup], 3);
    assert.deepEqual(first, forced[0]);
    assert.deepEqual(rest, lookup.slice(1));
    assert.equal(combineDrafts([forced, lookup], 2).length, 2);
    assert.deepEqual(combineDrafts([forced, lookup], 0), []);
  });
});
