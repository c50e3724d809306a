import assert from 'node:assert/strict';
import fc from 'fast-check';
import { ownExpertsCosts, type OwnExpertsSetting } from '../../bench/homes/own-experts.js';

const SETTING: OwnExpertsSetting = {
  layers: 48,
  experts: 128,
  expertsPerToken: 8,
  workers: 3,
  part: 0.25,
  skew: 0,
  ownMs: 0.06,
  workerMs: 0.17,
  roundTripMs: 0.3,
  messageMs: 0.1,
};

describe('bench homes: experts that main keeps itself', () => {
  it('as whole layers save their part of all messages, and more than any other way where all experts are used alike', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(0, 0.25, 0.5, 0.75, 1),
        fc.integer({ min: 1, max: 6 }),
        fc.integer({ min: 1, max: 8 }),
        (part, workers, expertsPerToken) => {
          const costs = ownExpertsCosts({ ...SETTING, part, workers, expertsPerToken });
          const { none, spread, whole } = costs;
          assert.ok(Math.abs(whole.messages - (1 - part) * none.messages) < 1e-9);
          assert.ok(whole.messages <= spread.messages + 1e-9, JSON.stringify(costs));
        },
      ),
    );
  });

  it('cost no message if main keeps all, and change nothing if it keeps none', () => {
    const all = ownExpertsCosts({ ...SETTING, part: 1 });
    for (const way of [all.spread, all.popular, all.whole]) {
      assert.ok(way.messages < 1e-9);
      assert.ok(Math.abs(way.ms - 48 * 8 * 0.06) < 1e-9);
    }
    const nothing = ownExpertsCosts({ ...SETTING, part: 0 });
    for (const way of [nothing.spread, nothing.popular, nothing.whole]) assert.deepEqual(way, nothing.none);
  });

  it('save more messages as the most used ones than spread, if some are used much more', () => {
    const { spread, popular } = ownExpertsCosts({ ...SETTING, skew: 1 });
    assert.ok(popular.messages < spread.messages);
  });
});
