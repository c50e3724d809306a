import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  DRAFTED_PASSES,
  DraftTrial,
  FIRST_PAUSE,
  JUDGED_PASSES,
  PLAIN_PASSES,
} from '../../main-node/drafting/draft-trial.js';

/** Runs passes that draft whenever they may; returns the time of all, the tokens of all, and the number of passes with drafts. */
function run(
  passes: number,
  draftedMs: number,
  tokens: number,
  plainMs = 10,
): { ms: number; tokens: number; drafted: number } {
  const trial = new DraftTrial();
  const sum = { ms: 0, tokens: 0, drafted: 0 };
  trial.passed(0, 1, plainMs);
  for (let pass = 0; pass < passes; pass++) {
    const drafts = trial.mayDraft ? 3 : 0;
    trial.passed(drafts, drafts > 0 ? tokens : 1, drafts > 0 ? draftedMs : plainMs);
    sum.ms += drafts > 0 ? draftedMs : plainMs;
    sum.tokens += drafts > 0 ? tokens : 1;
    sum.drafted += drafts > 0 ? 1 : 0;
  }
  return sum;
}

describe('drafting: test and set', () => {
  it('drafts at first', () => {
    assert.equal(new DraftTrial().mayDraft, true);
  });

  it('pauses drafts that make tokens slower, longer each time', () => {
    const { drafted } = run(FIRST_PAUSE * 15, 20, 1);
    assert.ok(drafted >= 3 * JUDGED_PASSES && drafted <= 5 * JUDGED_PASSES, `${drafted}`);
  });

  it('keeps drafts that pay, and goes on measuring passes without', () => {
    const passes = 20 * (DRAFTED_PASSES + PLAIN_PASSES);
    const { drafted } = run(passes, 12, 3);
    assert.ok(drafted < passes);
    assert.ok(drafted >= (passes * DRAFTED_PASSES) / (DRAFTED_PASSES + PLAIN_PASSES) - DRAFTED_PASSES, `${drafted}`);
  });

  it('knows after some passes without drafts, if all had drafts from the first on', () => {
    const trial = new DraftTrial();
    for (let pass = 0; pass < JUDGED_PASSES; pass++) trial.passed(2, 1, 20);
    assert.equal(trial.mayDraft, false);
    for (let pass = 0; pass < PLAIN_PASSES; pass++) trial.passed(0, 1, 10);
    assert.equal(trial.mayDraft, true);
    trial.passed(2, 1, 20);
    assert.equal(trial.mayDraft, false, 'now they are known to be slower');
  });

  it('loses less than 5 % over a long answer, whatever drafts cost, up to twice the time of a token', () => {
    fc.assert(
      fc.property(fc.double({ min: 1, max: 60, noNaN: true }), fc.integer({ min: 1, max: 4 }), (draftedMs, tokens) => {
        fc.pre(draftedMs / tokens <= 20);
        const { ms, tokens: made } = run(2000, draftedMs, tokens);
        assert.ok(ms / made <= 1.05 * 10, `${ms / made} ms for a token`);
      }),
    );
  });
});
