import assert from 'node:assert/strict';
import fc from 'fast-check';
import { percentiles, serveRow } from '../../../bench/serve/serve-figures.js';
import { ANSWER_TOKENS, plannedRequest, PROMPT_TOKENS, promptIdsOf } from '../../../bench/serve/user-plan.js';

describe('the figures of bench serve', () => {
  it('show tokens a second while all users ask, times to the first token and between tokens, loads a token', () => {
    const row = serveRow({ users: 2, batching: true, loads: 12 }, [
      { user: 0, askedMs: 0, tokenMs: [100, 110, 130] },
      { user: 1, askedMs: 0, tokenMs: [200, 240, 500] },
    ]);
    // Until the first user has its last answer: two tokens of it are those at 100 and 110, and the third ends it.
    assert.equal(row.tokensPerS, (1000 * 3) / 130);
    assert.equal(row.loadsPerToken, 2);
    assert.deepEqual(row.ttftMs, { p50: 100, p95: 200 });
    assert.deepEqual(row.gapMs, { p50: 20, p95: 260 });
  });

  it('take percentiles from the values', () => {
    assert.deepEqual(percentiles([]), { p50: 0, p95: 0 });
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 1000 }), { minLength: 1 }), (values) => {
        const { p50, p95 } = percentiles(values);
        const upTo = (limit: number): number => values.filter((value) => value <= limit).length;
        assert.ok(values.includes(p50) && values.includes(p95));
        assert.ok(upTo(p50) >= 0.5 * values.length && upTo(p95) >= 0.95 * values.length);
        assert.ok(upTo(p95 - 1) < 0.95 * values.length);
      }),
    );
  });
});

describe('the requests of bench serve', () => {
  it('follow from the seed, and differ from each other', () => {
    const lengths = (seed: number) =>
      Array.from({ length: 20 }, (_, turn) => plannedRequest(seed, 3, turn)).map((one) => JSON.stringify(one));
    assert.deepEqual(lengths(1), lengths(1));
    assert.notDeepEqual(lengths(1), lengths(2));
    assert.ok(new Set(lengths(1)).size > 15);
  });

  it('stay within the set lengths, and within the vocabulary', () => {
    fc.assert(
      fc.property(fc.nat(1000), fc.nat(255), fc.nat(100), (seed, user, turn) => {
        const { promptTokens, answerTokens } = plannedRequest(seed, user, turn);
        assert.ok(promptTokens >= PROMPT_TOKENS.least && promptTokens <= PROMPT_TOKENS.most);
        assert.ok(answerTokens >= ANSWER_TOKENS.least && answerTokens <= ANSWER_TOKENS.most);
        const ids = promptIdsOf(seed, user, turn, 256);
        assert.equal(ids.length, promptTokens);
        assert.ok(ids.every((id) => Number.isInteger(id) && id >= 0 && id < 256));
      }),
    );
  });
});
